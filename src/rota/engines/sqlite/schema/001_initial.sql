-- Version 1. Every name starts with rota_, so that the file may hold the application's own tables too.
-- Times are whole microseconds since the Unix epoch, UTC (C1). Columns that grow (errors, headers, payload) stand last:
-- SQLite reads a row from its front.

CREATE TABLE rota_meta (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    schema_version INTEGER NOT NULL
);

-- Numbers that never go back: token (turns too), job, seq, letter. The last one given.
CREATE TABLE rota_counters (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;

INSERT INTO rota_counters (name, value) VALUES ('token', 0), ('job', 0), ('seq', 0), ('letter', 0);

-- Q15. item: a job's id or a message's seq.
CREATE TABLE rota_keys (
    kind TEXT NOT NULL CHECK (kind IN ('queue', 'transport')),
    name TEXT NOT NULL,
    key TEXT NOT NULL,
    item INTEGER NOT NULL,
    until INTEGER NOT NULL,
    PRIMARY KEY (kind, name, key)
) WITHOUT ROWID;

CREATE INDEX rota_keys_until ON rota_keys (kind, name, until, key);

CREATE TABLE rota_notifications (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    channel TEXT NOT NULL,
    at INTEGER NOT NULL,
    payload TEXT
);

CREATE INDEX rota_notifications_channel ON rota_notifications (channel, id);

-- Queue ------------------------------------------------------------------------------------------------------------

CREATE TABLE rota_queues (
    name TEXT PRIMARY KEY,
    suspended_at INTEGER
) WITHOUT ROWID;

-- state: 0 pending, 1 processing: what is shown.
-- id: the number messages refer to. Numbers rise as groups come into being, which is about the order in which they are
-- claimed, so a batch of leases changes neighbouring pages however groups are named.
-- lane: 0 held by a claim that was valid when last seen, 1 open in claim order, 2 hidden: expired, waits for the sweep.
CREATE TABLE rota_jobs (
    id INTEGER PRIMARY KEY,
    queue TEXT NOT NULL,
    lane INTEGER NOT NULL DEFAULT 1,
    state INTEGER NOT NULL DEFAULT 0,
    priority INTEGER NOT NULL,
    run_at INTEGER NOT NULL,
    expires_at INTEGER,
    token INTEGER,
    claim_expires_at INTEGER,
    claimed_at INTEGER,
    attempts INTEGER NOT NULL DEFAULT 0,
    releases INTEGER NOT NULL DEFAULT 0,
    enqueued_at INTEGER NOT NULL,
    visibility INTEGER NOT NULL,
    max_attempts INTEGER NOT NULL,
    backoff_base INTEGER NOT NULL,
    dead_letter_retention INTEGER,
    keep_done INTEGER NOT NULL,
    key_ttl INTEGER NOT NULL,
    worker_id TEXT,
    name TEXT,
    key TEXT,
    last_error TEXT,
    previous_error TEXT,
    headers TEXT,
    payload TEXT NOT NULL
);

CREATE INDEX rota_jobs_open ON rota_jobs (queue, priority DESC, run_at, id, state) WHERE lane = 1;
CREATE INDEX rota_jobs_held ON rota_jobs (queue, claim_expires_at, token) WHERE lane = 0;
CREATE INDEX rota_jobs_expiring ON rota_jobs (queue, lane, expires_at, id) WHERE expires_at IS NOT NULL;
-- The two below are empty but after a crash or an expiry: they keep counting cheap.
CREATE INDEX rota_jobs_lapsed ON rota_jobs (queue, claim_expires_at) WHERE lane = 1 AND state = 1;
CREATE INDEX rota_jobs_hidden ON rota_jobs (queue, state) WHERE lane = 2;

CREATE TABLE rota_done_jobs (
    id INTEGER PRIMARY KEY,
    queue TEXT NOT NULL,
    done_at INTEGER NOT NULL,
    kept_until INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    run_at INTEGER NOT NULL,
    expires_at INTEGER,
    claim_expires_at INTEGER,
    claimed_at INTEGER,
    attempts INTEGER NOT NULL,
    releases INTEGER NOT NULL,
    enqueued_at INTEGER NOT NULL,
    visibility INTEGER NOT NULL,
    max_attempts INTEGER NOT NULL,
    backoff_base INTEGER NOT NULL,
    dead_letter_retention INTEGER,
    keep_done INTEGER NOT NULL,
    key_ttl INTEGER NOT NULL,
    worker_id TEXT,
    name TEXT,
    key TEXT,
    last_error TEXT,
    previous_error TEXT,
    headers TEXT,
    payload TEXT NOT NULL,
    result TEXT
);

CREATE INDEX rota_done_jobs_queue ON rota_done_jobs (queue, id);
CREATE INDEX rota_done_jobs_kept ON rota_done_jobs (queue, kept_until);

CREATE TABLE rota_dead_jobs (
    letter_id INTEGER PRIMARY KEY,
    id INTEGER NOT NULL UNIQUE,
    queue TEXT NOT NULL,
    reason TEXT NOT NULL,
    died_at INTEGER NOT NULL,
    retained_until INTEGER,
    priority INTEGER NOT NULL,
    run_at INTEGER NOT NULL,
    expires_at INTEGER,
    claim_expires_at INTEGER,
    claimed_at INTEGER,
    attempts INTEGER NOT NULL,
    releases INTEGER NOT NULL,
    enqueued_at INTEGER NOT NULL,
    visibility INTEGER NOT NULL,
    max_attempts INTEGER NOT NULL,
    backoff_base INTEGER NOT NULL,
    dead_letter_retention INTEGER,
    keep_done INTEGER NOT NULL,
    key_ttl INTEGER NOT NULL,
    worker_id TEXT,
    name TEXT,
    key TEXT,
    last_error TEXT NOT NULL,
    previous_error TEXT,
    headers TEXT,
    payload TEXT NOT NULL
);

CREATE INDEX rota_dead_jobs_queue ON rota_dead_jobs (queue, letter_id);
CREATE INDEX rota_dead_jobs_job ON rota_dead_jobs (queue, id);
CREATE INDEX rota_dead_jobs_retained ON rota_dead_jobs (queue, retained_until) WHERE retained_until IS NOT NULL;
CREATE INDEX rota_dead_jobs_died ON rota_dead_jobs (queue, died_at);

-- Transport --------------------------------------------------------------------------------------------------------

-- options: the ones somebody named (T11), as JSON.
CREATE TABLE rota_transports (
    name TEXT PRIMARY KEY,
    options TEXT NOT NULL DEFAULT '{}',
    suspended_at INTEGER
) WITHOUT ROWID;

-- A suspension outlives its group (T9).
CREATE TABLE rota_suspensions (
    transport TEXT NOT NULL,
    group_id TEXT NOT NULL,
    since INTEGER NOT NULL,
    PRIMARY KEY (transport, group_id)
) WITHOUT ROWID;

-- id: the number messages refer to. Numbers rise as groups come into being, which is about the order in which they are
-- claimed, so a batch of leases changes neighbouring pages however groups are named.
-- lane: 0 held (leased or parked) when last seen, 1 free. token: of a lease that may still be settled, also when it
-- lapsed and the group is free again. suspended mirrors rota_suspensions for the index of free groups.
CREATE TABLE rota_groups (
    id INTEGER PRIMARY KEY,
    transport TEXT NOT NULL,
    group_id TEXT NOT NULL,
    lane INTEGER NOT NULL DEFAULT 1,
    suspended INTEGER NOT NULL DEFAULT 0,
    priority INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    token INTEGER,
    deadline INTEGER,
    held_since INTEGER,
    last_claimed_at INTEGER,
    worker_id TEXT,
    UNIQUE (transport, group_id)
);

CREATE INDEX rota_groups_free ON rota_groups (transport, priority, turn) WHERE lane = 1 AND suspended = 0;
CREATE INDEX rota_groups_held ON rota_groups (transport, deadline) WHERE lane = 0;
CREATE INDEX rota_groups_suspended ON rota_groups (transport) WHERE suspended = 1;

CREATE TABLE rota_messages (
    seq INTEGER PRIMARY KEY,
    group_number INTEGER NOT NULL,
    deliveries INTEGER NOT NULL DEFAULT 0,
    published_at INTEGER NOT NULL,
    key TEXT,
    last_error TEXT,
    previous_error TEXT,
    headers TEXT,
    event TEXT NOT NULL
);

CREATE INDEX rota_messages_group ON rota_messages (group_number, seq);

CREATE TABLE rota_dead_messages (
    letter_id INTEGER PRIMARY KEY,
    transport TEXT NOT NULL,
    group_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    reason TEXT NOT NULL,
    died_at INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    deliveries INTEGER NOT NULL,
    published_at INTEGER NOT NULL,
    key TEXT,
    last_error TEXT NOT NULL,
    previous_error TEXT,
    headers TEXT,
    event TEXT NOT NULL
);

CREATE INDEX rota_dead_messages_transport ON rota_dead_messages (transport, letter_id);
CREATE INDEX rota_dead_messages_group ON rota_dead_messages (transport, group_id, letter_id);
CREATE INDEX rota_dead_messages_died ON rota_dead_messages (transport, died_at);
