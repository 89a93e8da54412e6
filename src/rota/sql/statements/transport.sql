-- The hot verbs of transports. One predicate stands verbatim wherever it is needed (a test compares them):
--   in flight:  deadline >= ?          (now)
-- Every settlement is fenced by the group's token, which one claim in the whole store has had.

-- name: transport
SELECT options, suspended_at FROM rota_transports WHERE name = ?

-- name: store_options
INSERT INTO rota_transports (name, options) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET options = excluded.options

-- Publish ----------------------------------------------------------------------------------------------------------

-- name: insert_group
INSERT INTO rota_groups (transport, group_id, priority, turn, suspended)
VALUES (?, ?, ?, ?, EXISTS (SELECT 1 FROM rota_suspensions WHERE transport = ? AND group_id = ?))
ON CONFLICT (transport, group_id) DO NOTHING

-- name: insert_message
INSERT INTO rota_messages (seq, group_number, published_at, key, headers, event)
VALUES (?, (SELECT id FROM rota_groups WHERE transport = ? AND group_id = ?), ?, ?, ?, ?)

-- Claim ------------------------------------------------------------------------------------------------------------

-- All that a claim has to know before it looks: the options, then one probe each: lapsed or unparked groups, the lowest
-- priority at or above the floor with a free group, the highest.
-- name: look
SELECT options, suspended_at,
    EXISTS (SELECT 1 FROM rota_groups WHERE lane = 0 AND transport = t.name AND deadline < ?),
    (SELECT priority FROM rota_groups WHERE lane = 1 AND suspended = 0 AND transport = t.name AND priority >= ?
        ORDER BY priority LIMIT 1),
    (SELECT priority FROM rota_groups WHERE lane = 1 AND suspended = 0 AND transport = t.name AND priority >= ?
        ORDER BY priority DESC LIMIT 1)
FROM rota_transports t WHERE name = ?

-- name: free_lapsed
UPDATE rota_groups SET lane = 1
WHERE id IN (SELECT id FROM rota_groups WHERE lane = 0 AND transport = ? AND deadline < ? ORDER BY deadline LIMIT ?)

-- name: next_priority
SELECT priority FROM rota_groups WHERE lane = 1 AND suspended = 0 AND transport = ? AND priority > ?
ORDER BY priority LIMIT 1

-- name: turns
SELECT turn, id FROM rota_groups WHERE lane = 1 AND suspended = 0 AND transport = ? AND priority = ?
ORDER BY turn LIMIT ?

-- name: heads_in_turn
SELECT g.id, g.group_id, g.priority, g.deadline, m.seq, m.event, m.headers, m.deliveries, m.published_at
FROM rota_groups g CROSS JOIN rota_messages m ON m.seq =
    (SELECT seq FROM rota_messages WHERE group_number = g.id ORDER BY seq LIMIT 1)
WHERE g.lane = 1 AND g.suspended = 0 AND g.transport = ? AND g.priority = ?
ORDER BY g.turn LIMIT ?

-- name: heads_of
SELECT g.id, g.group_id, g.priority, g.deadline, m.seq, m.event, m.headers, m.deliveries, m.published_at
FROM json_each(?) AS chosen CROSS JOIN rota_groups g ON g.id = chosen.value
CROSS JOIN rota_messages m ON m.seq =
    (SELECT seq FROM rota_messages WHERE group_number = g.id ORDER BY seq LIMIT 1)
ORDER BY chosen.key

-- name: next_message
SELECT seq, event, headers, deliveries, published_at FROM rota_messages WHERE group_number = ?
ORDER BY seq LIMIT 1

-- name: lease
UPDATE rota_groups SET lane = 0, token = ?1, turn = ?1, deadline = ?2, held_since = ?3, last_claimed_at = ?3,
    worker_id = ?4
WHERE id = ?5

-- name: deliver
UPDATE rota_messages SET deliveries = deliveries + 1 WHERE seq = ?

-- The same for many, listed in JSON: one statement each costs half of what as many small ones do.
-- name: lease_all
UPDATE rota_groups SET lane = 0, token = ?1 + leased.key, turn = ?1 + leased.key, deadline = ?2, held_since = ?3,
    last_claimed_at = ?3, worker_id = ?4
FROM json_each(?5) AS leased WHERE rota_groups.id = leased.value

-- name: deliver_all
UPDATE rota_messages SET deliveries = deliveries + 1 WHERE seq IN (SELECT value FROM json_each(?))

-- A group that lapsed under a clock that went back is held again.
-- name: hold_again
UPDATE rota_groups SET lane = 0 WHERE id = ? AND deadline >= ?

-- Settling ---------------------------------------------------------------------------------------------------------

-- name: ack
DELETE FROM rota_messages WHERE seq = ?
    AND EXISTS (SELECT 1 FROM rota_groups WHERE transport = ? AND group_id = ? AND token = ?)

-- name: drop_empty
DELETE FROM rota_groups WHERE transport = ? AND group_id = ? AND token = ?
    AND NOT EXISTS (SELECT 1 FROM rota_messages WHERE group_number = rota_groups.id)

-- Many at once: the token each message's group has, and whether there is another message.
-- name: tokens
SELECT m.seq, g.id, g.token, EXISTS (SELECT 1 FROM rota_messages WHERE group_number = g.id AND seq <> m.seq)
FROM json_each(?) AS asked CROSS JOIN rota_messages m ON m.seq = asked.value
CROSS JOIN rota_groups g ON g.id = m.group_number AND g.transport = ?

-- name: drop_messages
DELETE FROM rota_messages WHERE seq IN (SELECT value FROM json_each(?))

-- name: drop_groups
DELETE FROM rota_groups WHERE id IN (SELECT value FROM json_each(?))

-- name: free_all
UPDATE rota_groups SET lane = 1, token = NULL, deadline = NULL, held_since = NULL, worker_id = NULL
WHERE id IN (SELECT value FROM json_each(?))

-- name: free
UPDATE rota_groups SET lane = 1, token = NULL, deadline = NULL, held_since = NULL, worker_id = NULL
WHERE transport = ? AND group_id = ? AND token = ?

-- name: park
UPDATE rota_groups SET lane = 0, token = NULL, deadline = ?, held_since = ?, worker_id = NULL
WHERE transport = ? AND group_id = ? AND token = ?

-- name: note_error
UPDATE rota_messages SET previous_error = last_error, last_error = ? WHERE seq = ?

-- name: undeliver
UPDATE rota_messages SET deliveries = deliveries - 1 WHERE seq = ?

-- name: extend
UPDATE rota_groups SET lane = 0, deadline = ? WHERE transport = ? AND group_id = ? AND token = ? AND deadline >= ?

-- name: holds
SELECT id FROM rota_groups WHERE transport = ? AND group_id = ? AND token = ?

-- Dead letters -----------------------------------------------------------------------------------------------------

-- name: bury
INSERT INTO rota_dead_messages (letter_id, reason, died_at, priority, last_error, previous_error, transport, group_id,
    seq, deliveries, published_at, key, headers, event)
SELECT ?, ?, ?, priority, ?, last_error, transport, group_id, seq, deliveries, published_at, key, headers, event
FROM rota_messages CROSS JOIN rota_groups ON rota_groups.id = group_number WHERE seq = ?

-- Whoever delivered a buried message last may not settle what comes after it.
-- name: spend
UPDATE rota_groups SET lane = 1, token = NULL, deadline = NULL, held_since = NULL, worker_id = NULL
WHERE id = ?

-- name: drop_message
DELETE FROM rota_messages WHERE seq = ?

-- name: drop_group
DELETE FROM rota_groups WHERE id = ?

-- name: forget_letters
DELETE FROM rota_dead_messages WHERE letter_id IN
    (SELECT letter_id FROM rota_dead_messages WHERE transport = ? AND died_at <= ? ORDER BY died_at LIMIT ?)

-- Suspension -------------------------------------------------------------------------------------------------------

-- name: suspend_group
INSERT INTO rota_suspensions (transport, group_id, since) VALUES (?, ?, ?) ON CONFLICT DO NOTHING

-- name: resume_group
DELETE FROM rota_suspensions WHERE transport = ? AND group_id = ?

-- name: flag_group
UPDATE rota_groups SET suspended = ? WHERE transport = ? AND group_id = ?

-- name: suspend_all
UPDATE rota_transports SET suspended_at = ? WHERE name = ? AND suspended_at IS NULL

-- name: resume_all
UPDATE rota_transports SET suspended_at = NULL WHERE name = ? AND suspended_at IS NOT NULL
