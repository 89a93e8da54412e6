-- Tables. Times are whole microseconds since the Unix epoch, UTC (C1). Names compare code point by code point (P4).
-- Long columns stand last. Counters are sequences: they never go back, whatever is rolled back.

-- One counter gives tokens and turns, store-wide.
CREATE SEQUENCE {schema}.tokens AS bigint CACHE 1;
CREATE SEQUENCE {schema}.job_ids AS bigint CACHE 1;
CREATE SEQUENCE {schema}.seqs AS bigint CACHE 1;
CREATE SEQUENCE {schema}.letters AS bigint CACHE 1;

-- Q15. item: a job's id or a message's seq (then group_id says where it is); -1 while it is being made.
CREATE TABLE {schema}.keys (
    item bigint NOT NULL,
    until bigint NOT NULL,
    kind text COLLATE "C" NOT NULL CHECK (kind IN ('queue', 'transport')),
    name text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    group_id text COLLATE "C",
    PRIMARY KEY (kind, name, key)
);

CREATE INDEX keys_until ON {schema}.keys (kind, name, until, key);

-- Queue ------------------------------------------------------------------------------------------------------------

CREATE TABLE {schema}.queues (
    name text COLLATE "C" PRIMARY KEY,
    suspended_at bigint
);

-- state: 0 pending, 1 processing: what is shown.
-- lane: 0 held by a claim that was valid when last seen, 1 open in claim order, 2 hidden: expired, waits for the sweep.
CREATE TABLE {schema}.jobs (
    id bigint PRIMARY KEY,
    run_at bigint NOT NULL,
    enqueued_at bigint NOT NULL,
    expires_at bigint,
    token bigint,
    claim_expires_at bigint,
    claimed_at bigint,
    attempts bigint NOT NULL DEFAULT 0,
    releases bigint NOT NULL DEFAULT 0,
    visibility bigint NOT NULL,
    max_attempts bigint NOT NULL,
    backoff_base bigint NOT NULL,
    dead_letter_retention bigint,
    keep_done bigint NOT NULL,
    key_ttl bigint NOT NULL,
    priority integer NOT NULL,
    lane smallint NOT NULL DEFAULT 1,
    state smallint NOT NULL DEFAULT 0,
    queue text COLLATE "C" NOT NULL,
    worker_id text COLLATE "C",
    name text,
    key text COLLATE "C",
    last_error text,
    previous_error text,
    headers text,
    payload text NOT NULL
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.2);

CREATE INDEX jobs_open ON {schema}.jobs (queue, priority DESC, run_at, id) WHERE lane = 1;
CREATE INDEX jobs_held ON {schema}.jobs (queue, claim_expires_at, token) WHERE lane = 0;
CREATE INDEX jobs_expiring ON {schema}.jobs (queue, lane, expires_at, id) WHERE expires_at IS NOT NULL;
-- The two below are empty but after a crash or an expiry: they keep counting cheap.
CREATE INDEX jobs_lapsed ON {schema}.jobs (queue, claim_expires_at) WHERE lane = 1 AND state = 1;
CREATE INDEX jobs_hidden ON {schema}.jobs (queue, state) WHERE lane = 2;

CREATE TABLE {schema}.done_jobs (
    id bigint PRIMARY KEY,
    done_at bigint NOT NULL,
    kept_until bigint NOT NULL,
    run_at bigint NOT NULL,
    enqueued_at bigint NOT NULL,
    expires_at bigint,
    claim_expires_at bigint,
    claimed_at bigint,
    attempts bigint NOT NULL,
    releases bigint NOT NULL,
    visibility bigint NOT NULL,
    max_attempts bigint NOT NULL,
    backoff_base bigint NOT NULL,
    dead_letter_retention bigint,
    keep_done bigint NOT NULL,
    key_ttl bigint NOT NULL,
    priority integer NOT NULL,
    queue text COLLATE "C" NOT NULL,
    worker_id text COLLATE "C",
    name text,
    key text COLLATE "C",
    last_error text,
    previous_error text,
    headers text,
    payload text NOT NULL,
    result text
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX done_jobs_queue ON {schema}.done_jobs (queue, id);
CREATE INDEX done_jobs_kept ON {schema}.done_jobs (queue, kept_until);

CREATE TABLE {schema}.dead_jobs (
    letter_id bigint PRIMARY KEY,
    id bigint NOT NULL UNIQUE,
    died_at bigint NOT NULL,
    retained_until bigint,
    run_at bigint NOT NULL,
    enqueued_at bigint NOT NULL,
    expires_at bigint,
    claim_expires_at bigint,
    claimed_at bigint,
    attempts bigint NOT NULL,
    releases bigint NOT NULL,
    visibility bigint NOT NULL,
    max_attempts bigint NOT NULL,
    backoff_base bigint NOT NULL,
    dead_letter_retention bigint,
    keep_done bigint NOT NULL,
    key_ttl bigint NOT NULL,
    priority integer NOT NULL,
    queue text COLLATE "C" NOT NULL,
    reason text NOT NULL,
    worker_id text COLLATE "C",
    name text,
    key text COLLATE "C",
    last_error text NOT NULL,
    previous_error text,
    headers text,
    payload text NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX dead_jobs_queue ON {schema}.dead_jobs (queue, letter_id);
CREATE INDEX dead_jobs_job ON {schema}.dead_jobs (queue, id);
CREATE INDEX dead_jobs_retained ON {schema}.dead_jobs (queue, retained_until) WHERE retained_until IS NOT NULL;
CREATE INDEX dead_jobs_died ON {schema}.dead_jobs (queue, died_at);

-- Transport --------------------------------------------------------------------------------------------------------

-- options: the ones somebody named (T11), as JSON. What the functions below need of them stands beside it, resolved.
CREATE TABLE {schema}.transports (
    name text COLLATE "C" PRIMARY KEY,
    options text NOT NULL,
    suspended_at bigint,
    max_deliveries bigint,
    hold boolean NOT NULL,
    last boolean NOT NULL,
    retention bigint,
    key_ttl bigint NOT NULL
);

-- A suspension outlives its group (T9).
CREATE TABLE {schema}.suspensions (
    transport text COLLATE "C" NOT NULL,
    group_id text COLLATE "C" NOT NULL,
    since bigint NOT NULL,
    PRIMARY KEY (transport, group_id)
);

-- lane: 0 held (leased or parked) when last seen, 1 free. token and leased_seq: of a lease that may still be settled,
-- also when it lapsed and the group is free again. suspended mirrors suspensions for the index of free groups.
-- counted_seq, deliveries: the message claimed last, and its count, which is not written on the message while it stays
-- the head. low_seq: below it there is no message, and none under way; a claim that met no publisher says so, to spare
-- the next ones the walk over what was acked. drained: its last message went while a publisher held on to it; whoever meets it next looks again.
CREATE TABLE {schema}.groups (
    turn bigint NOT NULL,
    token bigint,
    leased_seq bigint,
    counted_seq bigint,
    deliveries bigint NOT NULL DEFAULT 0,
    low_seq bigint NOT NULL DEFAULT 0,
    deadline bigint,
    held_since bigint,
    last_claimed_at bigint,
    priority integer NOT NULL,
    lane smallint NOT NULL DEFAULT 1,
    suspended smallint NOT NULL DEFAULT 0,
    drained boolean NOT NULL DEFAULT false,
    transport text COLLATE "C" NOT NULL,
    group_id text COLLATE "C" NOT NULL,
    worker_id text COLLATE "C",
    PRIMARY KEY (transport, group_id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.2);

CREATE INDEX groups_free ON {schema}.groups (transport, priority, turn)
    WHERE lane = 1 AND suspended = 0 AND NOT drained;
-- Settlements look for their token: under an old snapshot the primary key of a busy group leads to all its dead versions.
CREATE INDEX groups_token ON {schema}.groups (token) WHERE token IS NOT NULL;
CREATE INDEX groups_held ON {schema}.groups (transport, deadline) WHERE lane = 0;
CREATE INDEX groups_suspended ON {schema}.groups (transport) WHERE suspended = 1;
-- Empty but for moments.
CREATE INDEX groups_drained ON {schema}.groups (transport) WHERE drained;

CREATE TABLE {schema}.messages (
    seq bigint NOT NULL,
    published_at bigint NOT NULL,
    deliveries bigint NOT NULL DEFAULT 0,
    transport text COLLATE "C" NOT NULL,
    group_id text COLLATE "C" NOT NULL,
    key text COLLATE "C",
    last_error text,
    previous_error text,
    headers text,
    event text NOT NULL,
    PRIMARY KEY (transport, group_id, seq)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.2);

CREATE TABLE {schema}.dead_messages (
    letter_id bigint PRIMARY KEY,
    seq bigint NOT NULL,
    died_at bigint NOT NULL,
    published_at bigint NOT NULL,
    deliveries bigint NOT NULL,
    priority integer NOT NULL,
    transport text COLLATE "C" NOT NULL,
    group_id text COLLATE "C" NOT NULL,
    reason text NOT NULL,
    key text COLLATE "C",
    last_error text NOT NULL,
    previous_error text,
    headers text,
    event text NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX dead_messages_transport ON {schema}.dead_messages (transport, letter_id);
CREATE INDEX dead_messages_group ON {schema}.dead_messages (transport, group_id, letter_id);
CREATE INDEX dead_messages_died ON {schema}.dead_messages (transport, died_at);
