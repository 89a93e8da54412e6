"""The longer texts of ``--help``."""

DESCRIPTION = """\
Leased work queues: queues of jobs with retries and dead letters, transports of messages in ordered groups.

The store is --url, else the environment's ROTA_URL, else sqlite:///rota.db in this directory; of `rota run` it is
the worker's own, unless --url is given. Reading commands never create it."""

ADDRESS_HELP = """\
addresses:
  queue:NAME or transport:NAME; a bare NAME where only one of them has it. Times are seconds, or numbers with
  ms, s, m, h, d; instants are POSIX seconds or ISO 8601 with a zone."""

WORK_EPILOG = """\
The command gets the payload as JSON on stdin and these variables: ROTA_KIND (job or message), ROTA_ATTEMPT,
ROTA_TOKEN, ROTA_WORKER, ROTA_PRIORITY, ROTA_HEADERS (JSON), ROTA_URL; a job ROTA_QUEUE, ROTA_ID, ROTA_NAME,
ROTA_MAX_ATTEMPTS; a message ROTA_TRANSPORT, ROTA_GROUP, ROTA_SEQ.

How it ends decides: 0 acks; 100 dead-letters; anything else retries later (backoff), with the end of its stderr as the
error. While it runs the claim is renewed. If the claim is lost all the same, the command gets SIGTERM, five seconds
later SIGKILL, and its result does not count.

The first Ctrl-C or SIGTERM stops claiming, waits the grace time for running commands, ends the rest and gives their
work back (exit 0); the second ends them at once (130 or 143). --drain waits for retries, for delayed work and for what
others hold; what is suspended it leaves, with exit 1.

  rota work queue:thumbnails -j 4 --drain -- ./thumbnail.sh"""

RUN_EPILOG = """\
The module is looked for in the current directory, then where Python looks. --url wins over the store that the worker
names itself; ROTA_URL is for a worker that names none. Without a logging configuration of its own, what the worker
logs goes to stderr.

The first Ctrl-C, SIGTERM or SIGHUP stops claiming, gives running handlers the grace time, then gives back what is held
(exit 0); the second does that at once (130, 143 or 129).

  rota run myapp.tasks:worker --url sqlite:///app.db"""
