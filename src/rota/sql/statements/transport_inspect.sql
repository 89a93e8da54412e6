-- Inspection and control of transports, and their dead letters.

-- part: message
seq, group_id, event, headers, deliveries, published_at, key, last_error, previous_error

-- part: letter
letter_id, reason, died_at, {message}, priority

-- name: groups
SELECT g.group_id, g.priority, g.suspended, g.deadline, g.token, g.worker_id, g.last_claimed_at,
    (SELECT count(*) FROM rota_messages WHERE group_number = g.id),
    (SELECT published_at FROM rota_messages WHERE group_number = g.id ORDER BY seq LIMIT 1)
FROM rota_groups g WHERE g.transport = ? AND g.group_id > ? ORDER BY g.group_id LIMIT ?

-- name: group_and_suspension
SELECT
    (SELECT suspended_at FROM rota_transports WHERE name = ?1),
    (SELECT since FROM rota_suspensions WHERE transport = ?1 AND group_id = ?2)

-- name: group
SELECT id, deadline, held_since, token, worker_id FROM rota_groups WHERE transport = ? AND group_id = ?

-- name: peek
SELECT m.seq, g.group_id, m.event, m.headers, m.deliveries, m.published_at, m.key, m.last_error, m.previous_error,
    g.priority
FROM rota_groups g CROSS JOIN rota_messages m ON m.group_number = g.id
WHERE g.transport = ? AND g.group_id = ? ORDER BY m.seq LIMIT ?

-- The indexes are named where the planner would walk all groups for a handful.
-- name: count_all
SELECT
    (SELECT count(*) FROM (SELECT 1 FROM rota_groups WHERE transport = ?1 LIMIT ?2)),
    (SELECT count(*) FROM (SELECT 1 FROM rota_groups g CROSS JOIN rota_messages m ON m.group_number = g.id
        WHERE g.transport = ?1 LIMIT ?2)),
    (SELECT count(*) FROM (SELECT 1 FROM rota_groups INDEXED BY rota_groups_free
        WHERE lane = 1 AND suspended = 0 AND transport = ?1 LIMIT ?2))
        + (SELECT count(*) FROM (SELECT 1 FROM rota_groups
            WHERE lane = 0 AND transport = ?1 AND deadline < ?3 AND suspended = 0 LIMIT ?2)),
    (SELECT count(*) FROM (SELECT 1 FROM rota_groups
        WHERE lane = 0 AND transport = ?1 AND deadline >= ?3 AND suspended = 0 AND token IS NOT NULL LIMIT ?2)),
    (SELECT count(*) FROM (SELECT 1 FROM rota_groups
        WHERE lane = 0 AND transport = ?1 AND deadline >= ?3 AND suspended = 0 AND token IS NULL LIMIT ?2)),
    (SELECT count(*) FROM (SELECT 1 FROM rota_groups INDEXED BY rota_groups_suspended
        WHERE suspended = 1 AND transport = ?1 LIMIT ?2)),
    (SELECT count(*) FROM (SELECT 1 FROM rota_dead_messages WHERE transport = ?1 LIMIT ?2))

-- The oldest head of the ready groups, among as many of them as are counted.
-- name: oldest_ready
SELECT min(published_at) FROM (
    SELECT (SELECT published_at FROM rota_messages WHERE group_number = g.id ORDER BY seq LIMIT 1) AS published_at
    FROM (SELECT id FROM rota_groups WHERE lane = 1 AND suspended = 0 AND transport = ?1
        ORDER BY priority, turn LIMIT ?2) g
    UNION ALL
    SELECT (SELECT published_at FROM rota_messages WHERE group_number = g.id ORDER BY seq LIMIT 1)
    FROM (SELECT id FROM rota_groups WHERE lane = 0 AND transport = ?1 AND deadline < ?3
        AND suspended = 0 ORDER BY deadline LIMIT ?2) g
)

-- name: next_due
SELECT deadline + 1 FROM rota_groups WHERE lane = 0 AND transport = ? AND deadline >= ? ORDER BY deadline LIMIT 1

-- name: purge_messages
DELETE FROM rota_messages WHERE group_number = ?

-- Letters ----------------------------------------------------------------------------------------------------------

-- name: letters
SELECT {letter} FROM rota_dead_messages WHERE transport = ? AND letter_id > ? ORDER BY letter_id LIMIT ?

-- name: letters_of_group
SELECT {letter} FROM rota_dead_messages WHERE transport = ? AND group_id = ? AND letter_id > ?
ORDER BY letter_id LIMIT ?

-- name: purge_letters
DELETE FROM rota_dead_messages WHERE transport = ?

-- name: purge_letters_by_id
DELETE FROM rota_dead_messages WHERE transport = ? AND letter_id = ?

-- name: purge_letters_by_age
DELETE FROM rota_dead_messages WHERE transport = ? AND died_at <= ?

-- name: redrivable
SELECT letter_id, seq, group_id, priority, key, published_at FROM rota_dead_messages WHERE transport = ? ORDER BY seq

-- name: redrivable_by_id
SELECT letter_id, seq, group_id, priority, rota_dead_messages.key, published_at
FROM json_each(?) AS chosen CROSS JOIN rota_dead_messages ON letter_id = chosen.value WHERE transport = ? ORDER BY seq

-- name: redrive
INSERT INTO rota_messages (seq, group_number, published_at, key, last_error, previous_error, headers, event)
SELECT ?, rota_groups.id, published_at, ?, last_error, previous_error, headers, event
FROM rota_dead_messages AS letter CROSS JOIN rota_groups
    ON rota_groups.transport = letter.transport AND rota_groups.group_id = letter.group_id
WHERE letter_id = ?

-- name: drop_letter
DELETE FROM rota_dead_messages WHERE letter_id = ?

-- A message put back before the head of a group never claimed moves that group forward (T3).
-- name: move_forward
UPDATE rota_groups SET turn = min(turn, ?) WHERE transport = ? AND group_id = ? AND turn < 0
