-- Inspection and control of queues, and their dead letters.

-- part: job
id, name, payload, headers, priority, attempts, run_at, enqueued_at, expires_at, worker_id, claimed_at,
    claim_expires_at, releases, last_error, previous_error, key,
    visibility, max_attempts, backoff_base, dead_letter_retention, keep_done, key_ttl

-- name: live_job
SELECT state, {job} FROM rota_jobs WHERE id = ? AND queue = ?

-- name: done_job
SELECT {job}, result, done_at FROM rota_done_jobs WHERE id = ? AND queue = ?

-- name: dead_job
SELECT letter_id, reason, died_at, {job} FROM rota_dead_jobs WHERE id = ? AND queue = ?

-- Listings walk the primary key: they are for people, and no index of the hot path pays for them.
-- name: live_jobs
SELECT state, {job} FROM rota_jobs WHERE id > ? AND queue = ? ORDER BY id LIMIT ?

-- name: live_jobs_in_state
SELECT state, {job} FROM rota_jobs WHERE id > ? AND queue = ? AND state = ? ORDER BY id LIMIT ?

-- name: done_jobs
SELECT {job}, result, done_at FROM rota_done_jobs WHERE queue = ? AND id > ? ORDER BY id LIMIT ?

-- name: dead_jobs
SELECT letter_id, reason, died_at, {job} FROM rota_dead_jobs WHERE queue = ? AND id > ? ORDER BY id LIMIT ?

-- name: open_in_priority
SELECT state, {job} FROM rota_jobs WHERE lane = 1 AND queue = ? AND priority = ? AND run_at <= ?
    AND (expires_at IS NULL OR expires_at > ?)
    AND (state = 0 AND run_at <= ? OR state = 1 AND claim_expires_at < ?)
ORDER BY run_at, id LIMIT ?

-- What the next claim dead-letters is not shown as claimable.
-- name: lapsed_and_held
SELECT state, {job} FROM rota_jobs WHERE lane = 0 AND queue = ? AND claim_expires_at < ?
    AND (expires_at IS NULL OR expires_at > ?)
    AND (state = 0 AND run_at <= ? OR state = 1 AND claim_expires_at < ?)
    AND attempts < max_attempts
ORDER BY priority DESC, run_at, id LIMIT ?

-- name: queue_suspended
SELECT suspended_at FROM rota_queues WHERE name = ?

-- name: suspend
INSERT INTO rota_queues (name, suspended_at) VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET suspended_at = excluded.suspended_at WHERE suspended_at IS NULL

-- name: resume
UPDATE rota_queues SET suspended_at = NULL WHERE name = ? AND suspended_at IS NOT NULL

-- Counting ---------------------------------------------------------------------------------------------------------

-- name: count_jobs
SELECT
    (SELECT count(*) FROM (SELECT 1 FROM rota_jobs WHERE lane = 1 AND queue = ?1 AND state = 0 LIMIT ?2) c)
        + (SELECT count(*) FROM (SELECT 1 FROM rota_jobs WHERE lane = 2 AND queue = ?1 AND state = 0 LIMIT ?2) c),
    (SELECT count(*) FROM (SELECT 1 FROM rota_jobs WHERE lane = 0 AND queue = ?1 LIMIT ?2) c)
        + (SELECT count(*) FROM (SELECT 1 FROM rota_jobs WHERE lane = 1 AND state = 1 AND queue = ?1 LIMIT ?2) c)
        + (SELECT count(*) FROM (SELECT 1 FROM rota_jobs WHERE lane = 2 AND queue = ?1 AND state = 1 LIMIT ?2) c),
    (SELECT count(*) FROM (SELECT 1 FROM rota_done_jobs WHERE queue = ?1 LIMIT ?2) c),
    (SELECT count(*) FROM (SELECT 1 FROM rota_dead_jobs WHERE queue = ?1 LIMIT ?2) c)

-- One probe per distinct priority. The instants at which pending jobs became, and become, ready.
-- name: ready_instants
WITH RECURSIVE lanes (priority) AS (
    SELECT (SELECT priority FROM rota_jobs WHERE lane = 1 AND queue = ?1 ORDER BY priority DESC LIMIT 1)
    UNION ALL
    SELECT (SELECT priority FROM rota_jobs WHERE lane = 1 AND queue = ?1 AND priority < lanes.priority
        ORDER BY priority DESC LIMIT 1)
    FROM lanes WHERE lanes.priority IS NOT NULL
)
SELECT
    (SELECT min(ready) FROM (SELECT (SELECT run_at FROM rota_jobs
        WHERE lane = 1 AND queue = ?1 AND priority = lanes.priority AND run_at <= ?2
            AND (expires_at IS NULL OR expires_at > ?2)
            AND (state = 0 AND run_at <= ?2 OR state = 1 AND claim_expires_at < ?2)
            AND state = 0
        ORDER BY run_at LIMIT 1) AS ready FROM lanes WHERE lanes.priority IS NOT NULL) r),
    (SELECT min(lapse) FROM (
        SELECT (SELECT claim_expires_at FROM rota_jobs WHERE lane = 0 AND queue = ?1 AND claim_expires_at < ?2
            AND (expires_at IS NULL OR expires_at > ?2)
            AND (state = 0 AND run_at <= ?2 OR state = 1 AND claim_expires_at < ?2)
            ORDER BY claim_expires_at LIMIT 1) AS lapse
        UNION ALL
        SELECT (SELECT claim_expires_at FROM rota_jobs
            WHERE lane = 1 AND state = 1 AND queue = ?1 AND claim_expires_at < ?2
            AND (expires_at IS NULL OR expires_at > ?2)
            AND (state = 0 AND run_at <= ?2 OR state = 1 AND claim_expires_at < ?2)
            ORDER BY claim_expires_at LIMIT 1)) l)

-- name: next_due
WITH RECURSIVE lanes (priority) AS (
    SELECT (SELECT priority FROM rota_jobs WHERE lane = 1 AND queue = ?1 ORDER BY priority DESC LIMIT 1)
    UNION ALL
    SELECT (SELECT priority FROM rota_jobs WHERE lane = 1 AND queue = ?1 AND priority < lanes.priority
        ORDER BY priority DESC LIMIT 1)
    FROM lanes WHERE lanes.priority IS NOT NULL
)
SELECT min(due) FROM (
    SELECT (SELECT run_at FROM rota_jobs WHERE lane = 1 AND queue = ?1 AND priority = lanes.priority AND run_at > ?2
        ORDER BY run_at LIMIT 1) AS due
    FROM lanes WHERE lanes.priority IS NOT NULL
    UNION ALL
    SELECT (SELECT claim_expires_at + 1 FROM rota_jobs WHERE lane = 0 AND queue = ?1 AND claim_expires_at >= ?2
        ORDER BY claim_expires_at LIMIT 1)
    UNION ALL
    SELECT (SELECT claim_expires_at + 1 FROM rota_jobs
        WHERE lane = 1 AND state = 1 AND queue = ?1 AND claim_expires_at >= ?2 ORDER BY claim_expires_at LIMIT 1)
) d

-- Purging and letters ----------------------------------------------------------------------------------------------

-- name: purge_live
DELETE FROM rota_jobs WHERE queue = ? AND state = ?

-- name: purge_done
DELETE FROM rota_done_jobs WHERE queue = ?

-- name: purge_letters
DELETE FROM rota_dead_jobs WHERE queue = ?

-- name: purge_letters_by_id
DELETE FROM rota_dead_jobs WHERE queue = ? AND letter_id = ?

-- name: purge_letters_by_age
DELETE FROM rota_dead_jobs WHERE queue = ? AND died_at <= ?

-- name: letters
SELECT letter_id, reason, died_at, {job} FROM rota_dead_jobs WHERE queue = ? AND letter_id > ?
ORDER BY letter_id LIMIT ?

-- name: redrivable
SELECT letter_id, id, key, enqueued_at, key_ttl FROM rota_dead_jobs WHERE queue = ? ORDER BY id

-- name: redrivable_by_id
SELECT letter_id, rota_dead_jobs.id, rota_dead_jobs.key, enqueued_at, key_ttl
FROM json_each(?) AS chosen CROSS JOIN rota_dead_jobs ON letter_id = chosen.value WHERE queue = ?
ORDER BY rota_dead_jobs.id

-- name: redrive
INSERT INTO rota_jobs (id, queue, priority, run_at, enqueued_at, releases, visibility, max_attempts, backoff_base,
    dead_letter_retention, keep_done, key_ttl, name, key, last_error, previous_error, headers, payload)
SELECT id, queue, priority, ?, enqueued_at, releases, visibility, max_attempts, backoff_base,
    dead_letter_retention, keep_done, key_ttl, name, ?, last_error, previous_error, headers, payload
FROM rota_dead_jobs WHERE letter_id = ?

-- name: drop_letter
DELETE FROM rota_dead_jobs WHERE letter_id = ?
