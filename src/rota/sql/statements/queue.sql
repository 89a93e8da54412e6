-- The hot verbs of queues. Two predicates stand verbatim wherever they are needed (a test compares them):
--   valid claim:  state = 1 AND worker_id = ? AND claim_expires_at >= ?          (worker, now), a token besides
--   claimable:    (expires_at IS NULL OR expires_at > ?)
--                 AND (state = 0 AND run_at <= ? OR state = 1 AND claim_expires_at < ?)

-- name: note_queue
INSERT INTO rota_queues (name) VALUES (?) ON CONFLICT (name) DO NOTHING

-- name: insert_job
INSERT INTO rota_jobs (id, queue, priority, run_at, expires_at, enqueued_at, name, key, headers, payload,
    visibility, max_attempts, backoff_base, dead_letter_retention, keep_done, key_ttl)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- Jobs of one call that differ in their payload alone. What they share is bound once where the row of values stands
-- several times; each begins with its distance from the first.
-- name: insert_alike
INSERT INTO rota_jobs (id, queue, enqueued_at, visibility, max_attempts, backoff_base, dead_letter_retention, keep_done,
    key_ttl, priority, run_at, expires_at, name, payload)
SELECT shared.first_id + each.column1, shared.queue, shared.enqueued_at, shared.visibility, shared.max_attempts,
    shared.backoff_base, shared.dead_letter_retention, shared.keep_done, shared.key_ttl, shared.priority, shared.run_at,
    shared.expires_at, shared.name, each.column2
FROM (SELECT ? AS first_id, ? AS queue, ? AS enqueued_at, ? AS visibility, ? AS max_attempts, ? AS backoff_base,
    ? AS dead_letter_retention, ? AS keep_done, ? AS key_ttl, ? AS priority, ? AS run_at, ? AS expires_at, ? AS name)
    AS shared
CROSS JOIN (VALUES (0, ?)) AS each

-- Claim ------------------------------------------------------------------------------------------------------------

-- All that a claim has to know before it looks, one probe each: suspended, lapsed claims, expired jobs, the top priority.
-- name: look
SELECT (SELECT suspended_at FROM rota_queues WHERE name = ?),
    EXISTS (SELECT 1 FROM rota_jobs WHERE lane = 0 AND queue = ? AND claim_expires_at < ?),
    EXISTS (SELECT 1 FROM rota_jobs WHERE lane = 1 AND queue = ? AND expires_at <= ?),
    (SELECT priority FROM rota_jobs WHERE lane = 1 AND queue = ? ORDER BY priority DESC LIMIT 1)

-- name: next_priority
SELECT priority, run_at FROM rota_jobs WHERE lane = 1 AND queue = ? AND priority < ?
ORDER BY priority DESC, run_at LIMIT 1

-- name: candidates
SELECT id, name, payload, headers, priority, attempts, max_attempts, run_at, enqueued_at, expires_at, releases,
    last_error, visibility, backoff_base, state, claim_expires_at
FROM rota_jobs WHERE lane = 1 AND queue = ? AND priority = ? AND run_at <= ?
ORDER BY run_at, id LIMIT ?

-- Jobs of consecutive ids, which get consecutive tokens.
-- name: claim
UPDATE rota_jobs SET lane = 0, state = 1, attempts = attempts + 1, token = ? + id, worker_id = ?, claimed_at = ?,
    claim_expires_at = ? + coalesce(?, visibility)
WHERE id BETWEEN ? AND ?

-- name: lapsed
SELECT id, attempts, max_attempts, expires_at FROM rota_jobs WHERE lane = 0 AND queue = ? AND claim_expires_at < ?
ORDER BY claim_expires_at, token LIMIT ?

-- Jobs that lapsed under a clock that has gone back are held again (C9).
-- name: hold_again
UPDATE rota_jobs SET lane = 0 WHERE id IN
    (SELECT id FROM rota_jobs WHERE lane = 1 AND state = 1 AND queue = ? AND claim_expires_at >= ? LIMIT ?)

-- name: expired_in_lane
SELECT id FROM rota_jobs WHERE queue = ? AND lane = ? AND expires_at <= ? ORDER BY expires_at LIMIT ?

-- name: set_lane
UPDATE rota_jobs SET lane = ? WHERE id = ?

-- Settling ---------------------------------------------------------------------------------------------------------

-- Most jobs leave nothing behind: one statement is their whole ack.
-- name: ack
DELETE FROM rota_jobs WHERE id = ? AND queue = ? AND keep_done = 0
    AND token = ? AND state = 1 AND worker_id = ? AND claim_expires_at >= ?

-- Jobs of consecutive ids under consecutive tokens, as claims hand them out.
-- name: ack_run
DELETE FROM rota_jobs WHERE id BETWEEN ? AND ? AND queue = ? AND keep_done = 0
    AND token = ? + id AND state = 1 AND worker_id = ? AND claim_expires_at >= ?

-- name: ack_bare
DELETE FROM rota_jobs WHERE id = ? AND queue = ? AND keep_done = 0
    AND state = 1 AND worker_id = ? AND claim_expires_at >= ?

-- name: keep
INSERT INTO rota_done_jobs (id, queue, done_at, kept_until, priority, run_at, expires_at, claim_expires_at, claimed_at,
    attempts, releases, enqueued_at, visibility, max_attempts, backoff_base, dead_letter_retention, keep_done, key_ttl,
    worker_id, name, key, last_error, previous_error, headers, payload, result)
SELECT id, queue, ?, ? + keep_done, priority, run_at, expires_at, claim_expires_at, claimed_at,
    attempts, releases, enqueued_at, visibility, max_attempts, backoff_base, dead_letter_retention, keep_done, key_ttl,
    worker_id, name, key, last_error, previous_error, headers, payload, ?
FROM rota_jobs WHERE id = ?

-- name: valid
SELECT attempts, max_attempts, keep_done FROM rota_jobs WHERE id = ? AND queue = ?
    AND token = ? AND state = 1 AND worker_id = ? AND claim_expires_at >= ?

-- name: valid_bare
SELECT attempts, max_attempts, keep_done FROM rota_jobs WHERE id = ? AND queue = ?
    AND state = 1 AND worker_id = ? AND claim_expires_at >= ?

-- name: retry
UPDATE rota_jobs SET lane = 1, state = 0, run_at = ?, worker_id = NULL, token = NULL, claimed_at = NULL,
    claim_expires_at = NULL,
    previous_error = iif(? IS NULL, previous_error, last_error), last_error = coalesce(?, last_error)
WHERE id = ?

-- name: release
UPDATE rota_jobs SET lane = 1, state = 0, run_at = coalesce(?, run_at), attempts = attempts - 1,
    releases = releases + 1, worker_id = NULL, token = NULL, claimed_at = NULL, claim_expires_at = NULL
WHERE id = ? AND queue = ? AND token = ? AND state = 1 AND worker_id = ? AND claim_expires_at >= ?

-- A job that lapsed under a clock that went back is held again: its lane follows.
-- name: heartbeat
UPDATE rota_jobs SET lane = 0, claim_expires_at = ?
WHERE id = ? AND queue = ? AND token = ? AND state = 1 AND worker_id = ? AND claim_expires_at >= ?

-- name: cancel
DELETE FROM rota_jobs WHERE id = ? AND queue = ?

-- name: drop_job
DELETE FROM rota_jobs WHERE id = ?

-- Dead letters -----------------------------------------------------------------------------------------------------

-- name: bury
INSERT INTO rota_dead_jobs (letter_id, reason, died_at, retained_until, last_error, previous_error, id, queue, priority,
    run_at, expires_at, claim_expires_at, claimed_at, attempts, releases, enqueued_at, visibility, max_attempts,
    backoff_base, dead_letter_retention, keep_done, key_ttl, worker_id, name, key, headers, payload)
SELECT ?, ?, ?, ? + dead_letter_retention, ?, last_error, id, queue, priority,
    run_at, expires_at, claim_expires_at, claimed_at, attempts, releases, enqueued_at, visibility, max_attempts,
    backoff_base, dead_letter_retention, keep_done, key_ttl, worker_id, name, key, headers, payload
FROM rota_jobs WHERE id = ?

-- name: expired
SELECT expires_at, id FROM rota_jobs WHERE queue = ? AND lane = ? AND expires_at <= ? ORDER BY expires_at, id LIMIT ?

-- name: forget_letters
DELETE FROM rota_dead_jobs WHERE letter_id IN
    (SELECT letter_id FROM rota_dead_jobs WHERE queue = ? AND retained_until <= ? ORDER BY retained_until LIMIT ?)

-- name: forget_done
DELETE FROM rota_done_jobs WHERE id IN
    (SELECT id FROM rota_done_jobs WHERE queue = ? AND kept_until <= ? ORDER BY kept_until LIMIT ?)
