-- Publishing and claiming of transports, one call each; read the head of 001_2 first. One predicate stands verbatim wherever
-- it is needed (a test compares them):
--   in flight:  deadline >= v_now
-- Every settlement is fenced by the group's token, which one claim in the whole store has had.
--
-- Who locks what. A publisher locks its group FOR KEY SHARE before it draws a seq; claims and settlements lock it
-- FOR NO KEY UPDATE, which lets publishers pass. Whoever takes the last message away deletes the group FIRST and then
-- looks for messages in a new statement, and puts the group back if there are any. Where a publisher in flight holds the
-- group, it is marked drained instead and looked at again by the next publish or claim. So a group that is neither
-- drained nor locked always has a message.
--
-- Danger: PostgreSQL may forget a KEY SHARE lock. An UPDATE whose new version goes to another page lets go of the old page
-- meanwhile, and then overwrites what was locked there since. A publisher looks at the row once more: if its xmax is the
-- publisher's own, it is alone, and every later update keeps its lock. One that is not alone (or that cannot see the row
-- again, since it is newer than the statement's snapshot) also takes the group's advisory lock, shared,
-- and locks the row again; whoever deletes a group, or relies on nobody publishing, locks the row first and then tries
-- that advisory lock, for a moment and never waiting.
--
-- Claims, purge and redrive need READ COMMITTED: with one snapshot for all their statements they could not look again.
-- Settlements work under stricter isolation too, in a transaction of the caller's: a row that changed since its snapshot
-- fails to serialise, and a group that looks empty is marked drained, for a message published since would not be seen.

CREATE FUNCTION {schema}.needs_read_committed() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'this function of Rota needs READ COMMITTED' USING ERRCODE = 'RT001';
END $$;

-- Groups (T5, T10) -------------------------------------------------------------------------------------------------

-- What publishers that are not alone hold besides the row.
CREATE FUNCTION {schema}.group_key(p_transport text, p_group text) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT hashtextextended(p_group, hashtextextended(p_transport, 0))
$$;

-- A publisher found these groups in use by others: hold them so that it cannot be forgotten. Lock them again afterwards.
-- There is room for some thousand advisory locks in a server, so a transaction takes 100 at most. A lock that keeps updates
-- off is not forgotten either, but waits for those that claim and settle, and they for it.
CREATE FUNCTION {schema}.hold_groups(p_transport text, p_groups text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_held integer := coalesce(nullif(current_setting('rota.held_groups', true), ''), '0')::integer + cardinality(p_groups);
BEGIN
    IF v_held <= 100 THEN
        PERFORM set_config('rota.held_groups', v_held::text, true);
        PERFORM pg_advisory_xact_lock_shared({schema}.group_key(p_transport, u.group_id)) FROM unnest(p_groups) u (group_id);
    ELSE
        PERFORM 1 FROM {schema}.groups WHERE transport = p_transport AND group_id = ANY (p_groups)
            ORDER BY group_id FOR NO KEY UPDATE;
    END IF;
END $$;

-- Whether no publisher holds a group that the caller has locked FOR UPDATE.
CREATE FUNCTION {schema}.nobody_publishes(p_transport text, p_group text) RETURNS boolean LANGUAGE sql AS $$
    SELECT CASE WHEN pg_try_advisory_lock({schema}.group_key(p_transport, p_group))
        THEN pg_advisory_unlock({schema}.group_key(p_transport, p_group)) ELSE false END
$$;

-- Forget groups, locked by the caller, whose last message is gone.
CREATE FUNCTION {schema}.drop_groups(p_transport text, p_groups text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_gone text[];
    v_priorities integer[];
    v_turns bigint[];
    v_claimed bigint[];
    v_suspended smallint[];
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        UPDATE {schema}.groups SET drained = true WHERE transport = p_transport AND group_id = ANY (p_groups);
        RETURN;
    END IF;
    WITH gone AS (
        DELETE FROM {schema}.groups WHERE transport = p_transport AND group_id = ANY (ARRAY(
            SELECT held.group_id FROM (SELECT group_id FROM {schema}.groups
                WHERE transport = p_transport AND group_id = ANY (p_groups) OFFSET 0 FOR UPDATE SKIP LOCKED) held
            WHERE {schema}.nobody_publishes(p_transport, held.group_id)))
        RETURNING group_id, priority, turn, last_claimed_at, suspended)
    SELECT array_agg(group_id), array_agg(priority), array_agg(turn), array_agg(last_claimed_at), array_agg(suspended)
    INTO v_gone, v_priorities, v_turns, v_claimed, v_suspended FROM gone;
    -- A new statement: published since, by somebody whose lock was gone when we took ours.
    INSERT INTO {schema}.groups (transport, group_id, priority, turn, last_claimed_at, suspended)
    SELECT p_transport, u.group_id, u.priority, u.turn, u.claimed, u.suspended
    FROM unnest(v_gone, v_priorities, v_turns, v_claimed, v_suspended) AS u (group_id, priority, turn, claimed, suspended)
    WHERE EXISTS (SELECT 1 FROM {schema}.messages m WHERE m.transport = p_transport AND m.group_id = u.group_id OFFSET 0);
    IF coalesce(cardinality(v_gone), 0) < cardinality(p_groups) THEN
        UPDATE {schema}.groups SET drained = true WHERE transport = p_transport AND group_id = ANY (p_groups)
            AND group_id NOT IN (SELECT unnest(v_gone));
    END IF;
END $$;

-- A bounded number of drained groups: those that got a message are open again, the others go.
CREATE FUNCTION {schema}.tidy_drained(p_transport text, p_limit bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_groups text[];
    v_alive text[];
BEGIN
    v_groups := ARRAY(SELECT group_id FROM {schema}.groups WHERE drained AND transport = p_transport
        LIMIT p_limit FOR UPDATE SKIP LOCKED);
    v_alive := ARRAY(SELECT u.group_id FROM unnest(v_groups) u (group_id)
        WHERE EXISTS (SELECT 1 FROM {schema}.messages m
            WHERE m.transport = p_transport AND m.group_id = u.group_id OFFSET 0));
    UPDATE {schema}.groups SET drained = false WHERE transport = p_transport AND group_id = ANY (v_alive);
    PERFORM {schema}.drop_groups(p_transport,
        ARRAY(SELECT u.group_id FROM unnest(v_groups) u (group_id) WHERE u.group_id <> ALL (v_alive)));
END $$;

-- A publish to a drained group makes a new group of it (T5), unless a message got in meanwhile.
CREATE FUNCTION {schema}.revive_group(p_transport text, p_group text, p_priority bigint, p_turn bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM {schema}.groups WHERE transport = p_transport AND group_id = p_group AND drained FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF EXISTS (SELECT 1 FROM {schema}.messages WHERE transport = p_transport AND group_id = p_group) THEN
        UPDATE {schema}.groups SET drained = false WHERE transport = p_transport AND group_id = p_group;
    ELSE
        UPDATE {schema}.groups SET drained = false, priority = p_priority, turn = p_turn, last_claimed_at = NULL
        WHERE transport = p_transport AND group_id = p_group;
    END IF;
END $$;

-- T3: a group never claimed goes before all claimed ones, lowest head first; new_groups="last": behind all.
CREATE FUNCTION {schema}.new_turn(p_transport text, p_seq bigint) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT last FROM {schema}.transports WHERE name = p_transport) THEN
        RETURN nextval('{schema}.tokens');
    END IF;
    RETURN p_seq - 4611686018427387904;
END $$;

-- Groups just made by this transaction may be suspended. Their suspensions are locked: one that is just being lifted is
-- waited for, and whoever lifts it later finds the groups.
CREATE FUNCTION {schema}.mark_suspended(p_transport text, p_groups text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_suspended text[];
BEGIN
    v_suspended := ARRAY(SELECT group_id FROM {schema}.suspensions
        WHERE transport = p_transport AND group_id = ANY (p_groups) ORDER BY group_id FOR KEY SHARE);
    IF cardinality(v_suspended) > 0 THEN
        UPDATE {schema}.groups SET suspended = 1
        WHERE transport = p_transport AND group_id = ANY (v_suspended) AND suspended = 0;
    END IF;
END $$;

-- Lock these groups (sorted), make those that are not there, draw p_count seqs while they are locked (p_seqs: those are
-- given). p_firsts: which seq is a group's first.
CREATE FUNCTION {schema}.open_groups(
    p_transport text, p_groups text[], p_priorities bigint[], p_firsts bigint[], p_count bigint, p_seqs bigint[]
) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    v_seqs bigint[];
    v_locked text[];
    v_drained boolean;
    v_shared text[];
    v_held text[] := '{}';
    v_missing integer;
    v_made integer;
BEGIN
    LOOP
        SELECT array_agg(held.group_id), bool_or(held.drained), array_agg(held.group_id) FILTER (WHERE held.shared)
        INTO v_locked, v_drained, v_shared
        FROM (SELECT locked.group_id, locked.drained, coalesce((SELECT g.xmax <> pg_current_xact_id()::xid
                FROM {schema}.groups g WHERE g.ctid = locked.ctid), true) AS shared
            FROM (SELECT group_id, drained, ctid FROM {schema}.groups
                WHERE transport = p_transport AND group_id = ANY (p_groups)
                ORDER BY group_id FOR KEY SHARE OFFSET 0) locked
            OFFSET 0) held;
        IF NOT v_shared <@ v_held THEN
            PERFORM {schema}.hold_groups(p_transport, v_shared);
            v_held := v_held || v_shared;
            CONTINUE;
        END IF;
        v_seqs := coalesce(p_seqs, ARRAY(SELECT nextval('{schema}.seqs') FROM generate_series(1, p_count)));
        v_missing := cardinality(p_groups) - coalesce(cardinality(v_locked), 0);
        EXIT WHEN v_missing = 0;
        -- Turns are drawn in the order of the messages, groups made in one order everywhere.
        INSERT INTO {schema}.groups (transport, group_id, priority, turn)
        SELECT p_transport, made.group_id, made.priority, made.turn
        FROM (SELECT u.group_id, u.priority, {schema}.new_turn(p_transport, v_seqs[u.first]) AS turn
            FROM (SELECT * FROM unnest(p_groups, p_priorities, p_firsts) AS missing (group_id, priority, first)
                WHERE group_id NOT IN (SELECT unnest(v_locked))
                ORDER BY first OFFSET 0) u
            OFFSET 0) made
        ORDER BY made.group_id COLLATE "C"
        ON CONFLICT (transport, group_id) DO NOTHING;
        GET DIAGNOSTICS v_made = ROW_COUNT;
        PERFORM {schema}.mark_suspended(p_transport, p_groups);
        EXIT WHEN v_made = v_missing;
        -- Somebody else made one meanwhile: lock it, and draw again.
    END LOOP;
    IF v_drained THEN
        PERFORM {schema}.revive_group(p_transport, u.group_id, u.priority, {schema}.new_turn(p_transport, v_seqs[u.first]))
        FROM unnest(p_groups, p_priorities, p_firsts) AS u (group_id, priority, first);
    END IF;
    RETURN v_seqs;
END $$;

-- Publish (T2, T5, T10) --------------------------------------------------------------------------------------------

CREATE FUNCTION {schema}.publish(
    p_now bigint, p_transport text, p_group text, p_event text, p_priority bigint, p_key text, p_headers text
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint;
    v_seq bigint;
    v_drained boolean;
    v_shared boolean;
BEGIN
    IF p_key IS NOT NULL THEN
        v_seq := {schema}.take_key(p_now, 'transport', p_transport, p_key);
        IF v_seq IS NOT NULL THEN
            RETURN v_seq;
        END IF;
    END IF;
    SELECT drained,
        coalesce((SELECT g.xmax <> pg_current_xact_id()::xid FROM {schema}.groups g WHERE g.ctid = held.ctid), true)
    INTO v_drained, v_shared
    FROM (SELECT drained, ctid FROM {schema}.groups
        WHERE transport = p_transport AND group_id = p_group FOR KEY SHARE OFFSET 0) held;
    IF v_shared THEN
        PERFORM {schema}.hold_groups(p_transport, ARRAY[p_group]);
        SELECT drained INTO v_drained
        FROM {schema}.groups WHERE transport = p_transport AND group_id = p_group FOR KEY SHARE;
    END IF;
    v_seq := nextval('{schema}.seqs');
    IF v_drained IS NULL THEN
        -- open_groups, for one.
        INSERT INTO {schema}.groups (transport, group_id, priority, turn)
        VALUES (p_transport, p_group, p_priority, {schema}.new_turn(p_transport, v_seq))
        ON CONFLICT (transport, group_id) DO NOTHING;
        v_drained := NOT FOUND;
        IF FOUND THEN
            PERFORM {schema}.mark_suspended(p_transport, ARRAY[p_group]);
        END IF;
    END IF;
    IF v_drained THEN
        v_seq := ({schema}.open_groups(p_transport, ARRAY[p_group], ARRAY[p_priority], ARRAY[1], 1, NULL))[1];
    END IF;
    v_now := coalesce(p_now, {schema}.clock_us());
    INSERT INTO {schema}.messages (transport, group_id, seq, published_at, key, headers, event)
    VALUES (p_transport, p_group, v_seq, v_now, p_key, p_headers, p_event);
    IF p_key IS NOT NULL THEN
        PERFORM {schema}.bind_key('transport', p_transport, p_key, v_seq,
            v_now + (SELECT key_ttl FROM {schema}.transports WHERE name = p_transport), p_group);
    END IF;
    RETURN v_seq;
END $$;

-- Arrays of equal length; p_keys and p_headers may be null where no message has the thing.
CREATE FUNCTION {schema}.publish_many(
    p_now bigint, p_transport text, p_groups text[], p_events text[], p_priorities bigint[], p_keys text[],
    p_headers text[]
) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint;
    v_seqs bigint[];
    v_taken bigint[];
    v_key record;
    v_item bigint;
    v_groups text[];
    v_priorities integer[];
    v_firsts integer[];
BEGIN
    IF p_keys IS NOT NULL THEN
        -- As in enqueue_many.
        v_taken := array_fill(NULL::bigint, ARRAY[cardinality(p_keys)]);
        FOR v_key IN SELECT u.key, array_agg(u.at ORDER BY u.at) AS places FROM unnest(p_keys) WITH ORDINALITY u (key, at)
            WHERE u.key IS NOT NULL GROUP BY u.key ORDER BY u.key COLLATE "C"
        LOOP
            v_item := {schema}.take_key(p_now, 'transport', p_transport, v_key.key);
            FOR i IN 1 .. cardinality(v_key.places) LOOP
                IF v_item IS NOT NULL OR i > 1 THEN
                    v_taken[v_key.places[i]] := coalesce(v_item, -v_key.places[1]);
                END IF;
            END LOOP;
        END LOOP;
    END IF;
    -- The first message of a group made here gives it its priority and its turn.
    SELECT array_agg(heads.group_id), array_agg(p_priorities[heads.first]), array_agg(heads.first)
    INTO v_groups, v_priorities, v_firsts
    FROM (SELECT u.group_id COLLATE "C" AS group_id, min(u.at)::integer AS first
        FROM unnest(p_groups, v_taken) WITH ORDINALITY AS u (group_id, taken, at)
        WHERE u.taken IS NULL GROUP BY 1 ORDER BY 1) heads;
    IF v_groups IS NOT NULL THEN
        v_seqs := {schema}.open_groups(p_transport, v_groups, v_priorities, v_firsts, cardinality(p_groups), NULL);
    END IF;
    v_now := coalesce(p_now, {schema}.clock_us());
    INSERT INTO {schema}.messages (transport, group_id, seq, published_at, key, headers, event)
    SELECT p_transport, u.group_id, u.seq, v_now, u.key, u.headers, u.event
    FROM unnest(p_groups, v_seqs, p_keys, p_headers, p_events, v_taken) AS u (group_id, seq, key, headers, event, taken)
    WHERE u.taken IS NULL;
    IF v_taken IS NOT NULL THEN
        PERFORM {schema}.bind_key('transport', p_transport, u.key, u.seq, v_now + t.key_ttl, u.group_id)
        FROM {schema}.transports t, unnest(p_groups, v_seqs, p_keys, v_taken) AS u (group_id, seq, key, taken)
        WHERE t.name = p_transport AND u.taken IS NULL AND u.key IS NOT NULL;
        v_seqs := ARRAY(SELECT CASE WHEN t.item IS NULL THEN v_seqs[t.at] WHEN t.item < 0 THEN v_seqs[-t.item] ELSE t.item END
            FROM unnest(v_taken) WITH ORDINALITY t (item, at) ORDER BY t.at);
    END IF;
    RETURN v_seqs;
END $$;

-- Dead letters and suspensions (D1, T7, T9) ------------------------------------------------------------------------

-- Move a message of a group locked by the caller to the dead.
CREATE FUNCTION {schema}.bury_message(
    p_now bigint, p_transport text, p_group text, p_seq bigint, p_reason text, p_error text
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {schema}.dead_messages (letter_id, seq, died_at, published_at, deliveries, priority, transport, group_id,
        reason, key, last_error, previous_error, headers, event)
    SELECT nextval('{schema}.letters'), m.seq, p_now, m.published_at,
        CASE WHEN g.counted_seq = m.seq THEN g.deliveries ELSE m.deliveries END, g.priority, m.transport, m.group_id,
        p_reason, m.key, coalesce(p_error, p_reason), m.last_error, m.headers, m.event
    FROM {schema}.messages m JOIN {schema}.groups g ON g.transport = m.transport AND g.group_id = m.group_id
    WHERE m.transport = p_transport AND m.group_id = p_group AND m.seq = p_seq;
    DELETE FROM {schema}.messages WHERE transport = p_transport AND group_id = p_group AND seq = p_seq;
    UPDATE {schema}.groups SET counted_seq = NULL, deliveries = 0
    WHERE transport = p_transport AND group_id = p_group AND counted_seq = p_seq;
END $$;

-- The group first, then its suspension, in this order everywhere. Whether that changed anything. A group that is not there
-- is made, drained, so that a publisher just making it is met: it waits for this transaction, or this one for it.
CREATE FUNCTION {schema}.suspend_group(p_now bigint, p_transport text, p_group text) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_changed boolean;
BEGIN
    INSERT INTO {schema}.groups (transport, group_id, priority, turn, drained)
    VALUES (p_transport, p_group, 0, 0, true) ON CONFLICT (transport, group_id) DO NOTHING;
    PERFORM 1 FROM {schema}.groups WHERE transport = p_transport AND group_id = p_group FOR NO KEY UPDATE;
    INSERT INTO {schema}.suspensions (transport, group_id, since)
    VALUES (p_transport, p_group, coalesce(p_now, {schema}.clock_us())) ON CONFLICT DO NOTHING;
    v_changed := FOUND;
    UPDATE {schema}.groups SET suspended = 1 WHERE transport = p_transport AND group_id = p_group AND suspended = 0;
    RETURN v_changed;
END $$;

CREATE FUNCTION {schema}.resume_group(p_transport text, p_group text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    v_changed boolean;
BEGIN
    PERFORM 1 FROM {schema}.groups WHERE transport = p_transport AND group_id = p_group FOR NO KEY UPDATE;
    DELETE FROM {schema}.suspensions WHERE transport = p_transport AND group_id = p_group;
    v_changed := FOUND;
    -- Made meanwhile by a publisher that saw the suspension, too.
    UPDATE {schema}.groups SET suspended = 0 WHERE transport = p_transport AND group_id = p_group;
    RETURN v_changed;
END $$;

-- T7, for groups locked by a claim: bury poisoned heads. Which groups are out of the claim, and how many were buried.
CREATE FUNCTION {schema}.bury_poisoned(
    p_now bigint, p_transport text, p_groups text[], p_maximum bigint, p_hold boolean, OUT o_out text[], OUT o_buried integer
) LANGUAGE plpgsql AS $$
DECLARE
    v_head record;
    v_left boolean;
BEGIN
    o_out := '{}';
    o_buried := 0;
    FOR v_head IN SELECT u.group_id FROM unnest(p_groups) WITH ORDINALITY u (group_id, at)
        CROSS JOIN LATERAL (SELECT low_seq, counted_seq, deliveries FROM {schema}.groups
            WHERE transport = p_transport AND group_id = u.group_id OFFSET 0) g
        CROSS JOIN LATERAL (SELECT seq, deliveries FROM {schema}.messages
            WHERE transport = p_transport AND group_id = u.group_id AND seq >= g.low_seq ORDER BY seq LIMIT 1) m
        WHERE CASE WHEN g.counted_seq = m.seq THEN g.deliveries ELSE m.deliveries END >= p_maximum
        ORDER BY u.at
    LOOP
        -- The head, and those behind it that are poisoned too.
        LOOP
            PERFORM {schema}.bury_message(p_now, p_transport, v_head.group_id, m.seq, 'max deliveries exceeded', NULL)
            FROM {schema}.groups g CROSS JOIN LATERAL (SELECT seq, deliveries FROM {schema}.messages
                WHERE transport = p_transport AND group_id = v_head.group_id AND seq >= g.low_seq
                ORDER BY seq LIMIT 1) m
            WHERE g.transport = p_transport AND g.group_id = v_head.group_id
                AND CASE WHEN g.counted_seq = m.seq THEN g.deliveries ELSE m.deliveries END >= p_maximum;
            EXIT WHEN NOT FOUND;
            o_buried := o_buried + 1;
            EXIT WHEN p_hold;
        END LOOP;
        v_left := EXISTS (SELECT 1 FROM {schema}.messages WHERE transport = p_transport AND group_id = v_head.group_id);
        IF p_hold OR NOT v_left THEN
            o_out := o_out || v_head.group_id;
            -- Whoever delivered a buried message last may not settle what comes after it.
            UPDATE {schema}.groups SET token = NULL, leased_seq = NULL, deadline = NULL, held_since = NULL, worker_id = NULL
            WHERE transport = p_transport AND group_id = v_head.group_id;
        END IF;
        IF p_hold THEN
            PERFORM {schema}.suspend_group(p_now, p_transport, v_head.group_id);
        END IF;
        IF NOT v_left THEN
            PERFORM {schema}.drop_groups(p_transport, ARRAY[v_head.group_id]);
        END IF;
    END LOOP;
END $$;
