-- Calls of the functions of transports: one statement, one round trip. Then what looks, each on one snapshot.

-- name: publish
SELECT {schema}.publish(%s, %s, %s, %s, %s, %s, %s)

-- name: publish_many
SELECT {schema}.publish_many(%s, %s, %s, %s, %s, %s, %s)

-- name: claim
SELECT * FROM {schema}.claim_groups(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)

-- name: ack
SELECT {schema}.ack_message(%s, %s, %s, %s)

-- name: ack_batch
SELECT {schema}.ack_messages(%s, %s)

-- name: give_up
SELECT {schema}.give_up(%s, %s, %s, %s, %s, %s, %s, %s)

-- name: release_batch
SELECT count(*) FILTER (WHERE released) FROM (
    SELECT {schema}.give_up(%s, %s, group_id, token, seq, 0, NULL, 1) AS released
    FROM unnest(%s::text[], %s::bigint[], %s::bigint[]) AS held (group_id, token, seq)
) AS each

-- name: extend
SELECT {schema}.extend_groups(%s, %s, %s, %s, %s)

-- name: fail
SELECT {schema}.fail_message(%s, %s, %s, %s, %s, %s)

-- name: purge
SELECT {schema}.purge_group(%s, %s)

-- name: forget
SELECT {schema}.forget_messages(%s, %s, %s)

-- name: redrive
SELECT {schema}.redrive_messages(%s, %s, %s, %s)

-- name: suspend_group
SELECT {schema}.suspend_group(%s, %s, %s)

-- name: resume_group
SELECT {schema}.resume_group(%s, %s)

-- name: suspend_all
UPDATE {schema}.transports SET suspended_at = coalesce(%s::bigint, {schema}.clock_us())
WHERE name = %s AND suspended_at IS NULL

-- name: resume_all
UPDATE {schema}.transports SET suspended_at = NULL WHERE name = %s AND suspended_at IS NOT NULL

-- name: next_due
SELECT {schema}.next_due_group(%s, %s)

-- Options (T11) ----------------------------------------------------------------------------------------------------

-- name: transports
SELECT name FROM {schema}.transports ORDER BY name

-- name: options
SELECT options FROM {schema}.transports WHERE name = %s

-- name: make
INSERT INTO {schema}.transports (name, options, max_deliveries, hold, last, retention, key_ttl)
VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT (name) DO NOTHING

-- Only if nobody changed them meanwhile.
-- name: change
UPDATE {schema}.transports SET options = %s, max_deliveries = %s, hold = %s, last = %s, retention = %s, key_ttl = %s
WHERE name = %s AND options = %s

-- Looking ----------------------------------------------------------------------------------------------------------

-- A drained group is shown only if it has a message.
-- name: groups
SELECT g.group_id, g.priority, g.suspended, g.deadline, g.token, g.worker_id, g.last_claimed_at,
    m.messages, m.oldest_at, coalesce(%(now)s::bigint, {schema}.clock_us())
FROM {schema}.groups g CROSS JOIN LATERAL (
    SELECT (SELECT count(*) FROM {schema}.messages WHERE transport = g.transport AND group_id = g.group_id) AS messages,
        (SELECT published_at FROM {schema}.messages WHERE transport = g.transport AND group_id = g.group_id
            ORDER BY seq LIMIT 1) AS oldest_at) m
WHERE g.transport = %(transport)s AND g.group_id > %(after)s AND m.oldest_at IS NOT NULL
ORDER BY g.group_id LIMIT %(limit)s

-- name: peek
SELECT m.seq, m.group_id, m.event, m.headers,
    CASE WHEN g.counted_seq = m.seq THEN g.deliveries ELSE m.deliveries END,
    m.published_at, m.key, m.last_error, m.previous_error, g.priority
FROM {schema}.groups g JOIN {schema}.messages m ON m.transport = g.transport AND m.group_id = g.group_id
WHERE g.transport = %s AND g.group_id = %s ORDER BY m.seq LIMIT %s

-- name: explain
SELECT coalesce(%(now)s::bigint, {schema}.clock_us()),
    (SELECT suspended_at FROM {schema}.transports WHERE name = %(transport)s),
    (SELECT since FROM {schema}.suspensions WHERE transport = %(transport)s AND group_id = %(group)s),
    EXISTS (SELECT 1 FROM {schema}.messages WHERE transport = %(transport)s AND group_id = %(group)s)::integer,
    g.held_since, g.deadline, g.token IS NOT NULL, g.worker_id
FROM (SELECT 1) one LEFT JOIN {schema}.groups g ON g.transport = %(transport)s AND g.group_id = %(group)s

-- name: stats
WITH moment AS MATERIALIZED (SELECT coalesce(%(now)s::bigint, {schema}.clock_us()) AS now)
SELECT
    (SELECT count(*) FROM (SELECT 1 FROM {schema}.groups g WHERE transport = %(transport)s AND (NOT drained OR EXISTS
        (SELECT 1 FROM {schema}.messages m WHERE m.transport = g.transport AND m.group_id = g.group_id))
        LIMIT %(cap)s) c),
    (SELECT count(*) FROM (SELECT 1 FROM {schema}.messages WHERE transport = %(transport)s LIMIT %(cap)s) c),
    (SELECT count(*) FROM (SELECT 1 FROM {schema}.groups g WHERE transport = %(transport)s AND suspended = 0
        AND (deadline IS NULL OR deadline < (SELECT now FROM moment)) AND (NOT drained OR EXISTS
        (SELECT 1 FROM {schema}.messages m WHERE m.transport = g.transport AND m.group_id = g.group_id))
        LIMIT %(cap)s) c),
    (SELECT count(*) FROM (SELECT 1 FROM {schema}.groups WHERE transport = %(transport)s AND suspended = 0
        AND deadline >= (SELECT now FROM moment) AND token IS NOT NULL LIMIT %(cap)s) c),
    (SELECT count(*) FROM (SELECT 1 FROM {schema}.groups WHERE transport = %(transport)s AND suspended = 0
        AND deadline >= (SELECT now FROM moment) AND token IS NULL LIMIT %(cap)s) c),
    (SELECT count(*) FROM (SELECT 1 FROM {schema}.groups g WHERE suspended = 1 AND transport = %(transport)s AND EXISTS
        (SELECT 1 FROM {schema}.messages m WHERE m.transport = g.transport AND m.group_id = g.group_id)
        LIMIT %(cap)s) c),
    (SELECT count(*) FROM (SELECT 1 FROM {schema}.dead_messages WHERE transport = %(transport)s LIMIT %(cap)s) c),
    (SELECT min(heads.published_at) FROM (
        SELECT (SELECT published_at FROM {schema}.messages WHERE transport = g.transport AND group_id = g.group_id
            ORDER BY seq LIMIT 1) AS published_at
        FROM (SELECT transport, group_id FROM {schema}.groups WHERE transport = %(transport)s AND suspended = 0
            AND (deadline IS NULL OR deadline < (SELECT now FROM moment)) LIMIT %(cap)s) g) heads),
    (SELECT suspended_at FROM {schema}.transports WHERE name = %(transport)s),
    (SELECT deadline + 1 FROM {schema}.groups
        WHERE lane = 0 AND transport = %(transport)s AND deadline >= (SELECT now FROM moment)
        ORDER BY deadline LIMIT 1),
    (SELECT now FROM moment)

-- Letters ----------------------------------------------------------------------------------------------------------

-- part: letter
letter_id, reason, died_at, seq, group_id, event, headers, deliveries, published_at, key, last_error, previous_error,
    priority

-- name: letters
SELECT {letter} FROM {schema}.dead_messages WHERE transport = %s AND letter_id > %s ORDER BY letter_id LIMIT %s

-- name: letters_of_group
SELECT {letter} FROM {schema}.dead_messages WHERE transport = %s AND group_id = %s AND letter_id > %s
ORDER BY letter_id LIMIT %s

-- name: purge_letters
DELETE FROM {schema}.dead_messages WHERE transport = %s

-- name: purge_letters_by_id
DELETE FROM {schema}.dead_messages WHERE transport = %s AND letter_id = ANY (%s)

-- name: purge_letters_by_age
DELETE FROM {schema}.dead_messages WHERE transport = %s AND died_at <= coalesce(%s::bigint, {schema}.clock_us()) - %s
