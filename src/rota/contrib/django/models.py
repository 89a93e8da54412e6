"""No models: Rota's tables are its own. Django tells only applications with such a module that it has migrated."""
