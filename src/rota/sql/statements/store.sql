-- Counters, keys, channels, names: what queues and transports share.

-- name: advance
UPDATE rota_counters SET value = value + ? WHERE name = ? RETURNING value

-- Keys (Q15) -------------------------------------------------------------------------------------------------------

-- name: job_of_key
SELECT item, until, EXISTS (SELECT 1 FROM rota_jobs WHERE id = item)
FROM rota_keys WHERE kind = ? AND name = ? AND key = ?

-- name: message_of_key
SELECT item, until, EXISTS (SELECT 1 FROM rota_messages WHERE seq = item)
FROM rota_keys WHERE kind = ? AND name = ? AND key = ?

-- name: bind_key
INSERT INTO rota_keys (kind, name, key, item, until) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (kind, name, key) DO UPDATE SET item = excluded.item, until = excluded.until

-- name: job_keys_over
SELECT key, until, EXISTS (SELECT 1 FROM rota_jobs WHERE id = item)
FROM rota_keys WHERE kind = ? AND name = ? AND (until, key) > (?, ?) AND until <= ?
ORDER BY until, key LIMIT ?

-- name: message_keys_over
SELECT key, until, EXISTS (SELECT 1 FROM rota_messages WHERE seq = item)
FROM rota_keys WHERE kind = ? AND name = ? AND (until, key) > (?, ?) AND until <= ?
ORDER BY until, key LIMIT ?

-- name: drop_key
DELETE FROM rota_keys WHERE kind = ? AND name = ? AND key = ?

-- Channels (X6) ----------------------------------------------------------------------------------------------------

-- name: notify
INSERT INTO rota_notifications (channel, at, payload) VALUES (?, ?, ?)

-- Ids rise with time: the oldest hundred are looked at, no more.
-- name: forget_notifications
DELETE FROM rota_notifications
WHERE at < ? AND id < (SELECT min(id) FROM rota_notifications) + 100

-- name: newest_notification
SELECT max(id) FROM rota_notifications

-- name: notifications_after
SELECT id, payload FROM rota_notifications WHERE channel = ? AND id > ? ORDER BY id LIMIT ?

-- Names ------------------------------------------------------------------------------------------------------------

-- name: queues
SELECT name FROM rota_queues ORDER BY name

-- name: transports
SELECT name FROM rota_transports ORDER BY name
