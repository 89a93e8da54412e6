// Loads Pyodide, unpacks a wheel of Rota and runs a program on it: node pyodide_run.mjs MODULE WHEEL PROGRAM
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [module, wheel, program] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(module));
const python = await loadPyodide();
python.unpackArchive(new Uint8Array(readFileSync(wheel)), "wheel");
await python.runPythonAsync(readFileSync(program, "utf8"));
