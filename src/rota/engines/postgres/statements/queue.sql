-- Calls of the functions of queues: one statement, one round trip.

-- name: note
INSERT INTO {schema}.queues (name) VALUES (%s) ON CONFLICT (name) DO NOTHING

-- name: enqueue
SELECT {schema}.enqueue(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)

-- name: enqueue_many
SELECT {schema}.enqueue_many(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)

-- name: claim
SELECT * FROM {schema}.claim_jobs(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)

-- name: ack
SELECT {schema}.ack_job(%s, %s, %s, %s, %s, %s)

-- name: ack_batch
SELECT {schema}.ack_jobs(%s, %s, %s, %s, %s)

-- name: retry
SELECT {schema}.retry_job(%s, %s, %s, %s, %s, %s, %s)

-- name: fail
SELECT {schema}.fail_job(%s, %s, %s, %s, %s, %s)

-- name: release
SELECT {schema}.release_job(%s, %s, %s, %s, %s, %s)

-- name: release_batch
SELECT count(*) FILTER (WHERE released) FROM (
    SELECT {schema}.release_job(%s, %s, id, token, worker, NULL) AS released
    FROM unnest(%s::bigint[], %s::bigint[], %s::text[]) AS held (id, token, worker)
) AS each

-- name: heartbeat
SELECT {schema}.heartbeat_jobs(%s, %s, %s, %s, %s, %s)

-- name: cancel
SELECT {schema}.cancel_job(%s, %s)

-- name: sweep
SELECT * FROM {schema}.sweep_jobs(%s, %s, %s)

-- name: forget
SELECT {schema}.forget_jobs(%s, %s, %s)

-- name: redrive
SELECT {schema}.redrive_jobs(%s, %s, %s)

-- name: next_due
SELECT {schema}.next_due_job(%s, %s)

-- name: now
SELECT coalesce(%s::bigint, {schema}.clock_us())

-- name: sweep_keys
SELECT * FROM {schema}.sweep_keys(%s, %s, %s, %s, %s, %s)

-- A queue is there from its first job or suspension on.
-- name: queues
SELECT name FROM {schema}.queues ORDER BY name

-- name: suspend
INSERT INTO {schema}.queues AS q (name, suspended_at) VALUES (%s, coalesce(%s::bigint, {schema}.clock_us()))
ON CONFLICT (name) DO UPDATE SET suspended_at = excluded.suspended_at WHERE q.suspended_at IS NULL

-- name: resume
UPDATE {schema}.queues SET suspended_at = NULL WHERE name = %s AND suspended_at IS NOT NULL

-- In the order in which every batch locks.
-- name: purge_live
DELETE FROM {schema}.jobs WHERE id = ANY (ARRAY(SELECT id FROM {schema}.jobs WHERE queue = %s AND state = %s
    ORDER BY id FOR UPDATE))

-- name: purge_letters_by_id
DELETE FROM {schema}.dead_jobs WHERE queue = %s AND letter_id = ANY (%s)

-- name: purge_letters_by_age
DELETE FROM {schema}.dead_jobs WHERE queue = %s AND died_at <= coalesce(%s::bigint, {schema}.clock_us()) - %s
