-- Settling of transports (T6), their sweep, purge and redrive; read the head of 001_4 first.

-- Handled: the message goes, the group is free, or gone with its last message.
CREATE FUNCTION {schema}.ack_message(p_transport text, p_group text, p_token bigint, p_seq bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_row tid;
    v_more boolean;
    v_priority integer;
    v_turn bigint;
    v_claimed bigint;
    v_suspended smallint;
BEGIN
    UPDATE {schema}.groups SET lane = 1, token = NULL, leased_seq = NULL, counted_seq = NULL, deliveries = 0,
        deadline = NULL, held_since = NULL, worker_id = NULL
    WHERE token = p_token AND (transport, group_id) IS NOT DISTINCT FROM (p_transport, p_group)
    RETURNING ctid, EXISTS (SELECT 1 FROM {schema}.messages m
            WHERE m.transport = p_transport AND m.group_id = p_group AND m.seq > p_seq)
        OR EXISTS (SELECT 1 FROM {schema}.messages m
            WHERE m.transport = p_transport AND m.group_id = p_group AND m.seq >= low_seq AND m.seq < p_seq)
    INTO v_row, v_more;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM {schema}.messages WHERE transport = p_transport AND group_id = p_group AND seq = p_seq;
    IF v_more THEN
        RETURN true;
    END IF;
    -- drop_groups, for one.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        UPDATE {schema}.groups SET drained = true WHERE ctid = v_row;
        RETURN true;
    END IF;
    DELETE FROM {schema}.groups
    WHERE ctid = (SELECT held.ctid FROM (SELECT ctid FROM {schema}.groups WHERE ctid = v_row OFFSET 0 FOR UPDATE SKIP LOCKED) held
        WHERE {schema}.nobody_publishes(p_transport, p_group))
    RETURNING priority, turn, last_claimed_at, suspended INTO v_priority, v_turn, v_claimed, v_suspended;
    IF NOT FOUND THEN
        UPDATE {schema}.groups SET drained = true WHERE ctid = v_row;
    ELSIF EXISTS (SELECT 1 FROM {schema}.messages WHERE transport = p_transport AND group_id = p_group) THEN
        INSERT INTO {schema}.groups (transport, group_id, priority, turn, last_claimed_at, suspended)
        VALUES (p_transport, p_group, v_priority, v_turn, v_claimed, v_suspended);
    END IF;
    RETURN true;
END $$;

-- Each by its token, which knows its message.
CREATE FUNCTION {schema}.ack_messages(p_transport text, p_tokens bigint[]) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    v_groups text[];
    v_seqs bigint[];
    v_rows tid[];
    v_more text[];
    v_empty text[];
BEGIN
    -- In one order everywhere.
    -- That of the tokens: so the index gives them, whatever the order in the array.
    WITH freed AS (
        UPDATE {schema}.groups SET lane = 1, token = NULL, counted_seq = NULL, deliveries = 0, deadline = NULL,
            held_since = NULL, worker_id = NULL
        WHERE token = ANY (p_tokens) AND transport IS NOT DISTINCT FROM p_transport
        RETURNING group_id, leased_seq)
    SELECT array_agg(group_id), array_agg(leased_seq) INTO v_groups, v_seqs FROM freed;
    IF v_groups IS NULL THEN
        RETURN 0;
    END IF;
    -- One look finds the message and whether there is another one behind it.
    SELECT array_agg(m.ctid) FILTER (WHERE m.seq = u.seq), array_agg(u.group_id) FILTER (WHERE m.seq > u.seq)
    INTO v_rows, v_more
    FROM unnest(v_groups, v_seqs) AS u (group_id, seq)
        CROSS JOIN LATERAL (SELECT ctid, seq FROM {schema}.messages
            WHERE transport = p_transport AND group_id = u.group_id AND seq >= u.seq ORDER BY seq LIMIT 2) m;
    DELETE FROM {schema}.messages WHERE ctid = ANY (v_rows);
    IF coalesce(cardinality(v_more), 0) < cardinality(v_groups) THEN
        v_empty := ARRAY(SELECT u.group_id FROM unnest(v_groups) AS u (group_id)
            WHERE u.group_id NOT IN (SELECT unnest(v_more)) AND NOT EXISTS (SELECT 1 FROM {schema}.messages m
                WHERE m.transport = p_transport AND m.group_id = u.group_id OFFSET 0));
        IF v_empty <> '{}' THEN
            PERFORM {schema}.drop_groups(p_transport, v_empty);
        END IF;
    END IF;
    RETURN cardinality(v_groups);
END $$;

-- Free the group, or park it; p_back: deliveries that do not count (1 for a release).
CREATE FUNCTION {schema}.give_up(
    p_now bigint, p_transport text, p_group text, p_token bigint, p_seq bigint, p_delay bigint, p_error text,
    p_back bigint
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    v_row tid;
    v_now bigint;
BEGIN
    SELECT ctid INTO v_row FROM {schema}.groups
    WHERE token = p_token AND (transport, group_id) IS NOT DISTINCT FROM (p_transport, p_group) FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF p_delay > 0 THEN
        v_now := coalesce(p_now, {schema}.clock_us());
    END IF;
    UPDATE {schema}.groups SET lane = CASE WHEN p_delay > 0 THEN 0 ELSE 1 END, token = NULL, leased_seq = NULL,
        deliveries = CASE WHEN counted_seq = p_seq THEN deliveries - p_back ELSE deliveries END,
        deadline = v_now + p_delay, held_since = v_now, worker_id = NULL
    WHERE ctid = v_row;
    IF p_error IS NOT NULL THEN
        UPDATE {schema}.messages SET previous_error = last_error, last_error = p_error
        WHERE transport = p_transport AND group_id = p_group AND seq = p_seq;
    END IF;
    RETURN true;
END $$;

-- The new deadline of each lease, null where it is lost. A group that lapsed under a clock that went back is held again.
CREATE FUNCTION {schema}.extend_groups(
    p_now bigint, p_transport text, p_groups text[], p_tokens bigint[], p_visibility bigint
) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint;
    v_rows tid[];
    v_places bigint[];
    v_place bigint;
    v_deadlines bigint[] := array_fill(NULL::bigint, ARRAY[cardinality(p_groups)]);
BEGIN
    -- In one order everywhere.
    SELECT array_agg(held.ctid), array_agg(held.at) INTO v_rows, v_places
    FROM (SELECT g.ctid, u.at
        FROM (SELECT * FROM unnest(p_groups, p_tokens) WITH ORDINALITY AS u (group_id, token, at)
            ORDER BY u.token OFFSET 0) u
        CROSS JOIN LATERAL (SELECT ctid FROM {schema}.groups
            WHERE token = u.token AND (transport, group_id) IS NOT DISTINCT FROM (p_transport, u.group_id)
            FOR NO KEY UPDATE) g) held;
    v_now := coalesce(p_now, {schema}.clock_us());
    FOR v_place IN UPDATE {schema}.groups g SET lane = 0, deadline = v_now + p_visibility
        FROM unnest(v_rows, v_places) AS u (ctid, at) WHERE g.ctid = u.ctid AND g.deadline >= v_now
        RETURNING u.at
    LOOP
        v_deadlines[v_place] := v_now + p_visibility;
    END LOOP;
    RETURN v_deadlines;
END $$;

-- Dead-letter the message; free the group, forget it if it is empty, suspend it under poison="hold".
CREATE FUNCTION {schema}.fail_message(
    p_now bigint, p_transport text, p_group text, p_token bigint, p_seq bigint, p_error text
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    v_row tid;
    v_now bigint;
BEGIN
    SELECT ctid INTO v_row FROM {schema}.groups
    WHERE token = p_token AND (transport, group_id) IS NOT DISTINCT FROM (p_transport, p_group) FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    v_now := coalesce(p_now, {schema}.clock_us());
    PERFORM {schema}.bury_message(v_now, p_transport, p_group, p_seq, 'failed', p_error);
    UPDATE {schema}.groups SET lane = 1, token = NULL, leased_seq = NULL, deadline = NULL, held_since = NULL, worker_id = NULL
    WHERE transport = p_transport AND group_id = p_group;
    IF (SELECT hold FROM {schema}.transports WHERE name = p_transport) THEN
        PERFORM {schema}.suspend_group(v_now, p_transport, p_group);
    END IF;
    IF NOT EXISTS (SELECT 1 FROM {schema}.messages WHERE transport = p_transport AND group_id = p_group) THEN
        PERFORM {schema}.drop_groups(p_transport, ARRAY[p_group]);
    END IF;
    RETURN true;
END $$;

-- Remove a group's messages, leased ones too; its suspension stays. How many.
CREATE FUNCTION {schema}.purge_group(p_transport text, p_group text) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    v_count integer;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        PERFORM {schema}.needs_read_committed();
    END IF;
    PERFORM 1 FROM {schema}.groups WHERE transport = p_transport AND group_id = p_group FOR UPDATE;
    DELETE FROM {schema}.messages WHERE transport = p_transport AND group_id = p_group;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    PERFORM {schema}.drop_groups(p_transport, ARRAY[p_group]);
    RETURN v_count;
END $$;

-- One round of forgetting letters whose retention is over.
CREATE FUNCTION {schema}.forget_messages(p_now bigint, p_transport text, p_limit bigint) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    v_until bigint := coalesce(p_now, {schema}.clock_us())
        - (SELECT retention FROM {schema}.transports WHERE name = p_transport);
    v_count integer;
BEGIN
    DELETE FROM {schema}.dead_messages WHERE letter_id = ANY (ARRAY(SELECT letter_id FROM {schema}.dead_messages
        WHERE transport = p_transport AND died_at <= v_until ORDER BY died_at LIMIT p_limit FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END $$;

-- Make letters (null: all) live again (D3); their seqs, in the order of the old ones. p_original: those they had.
CREATE FUNCTION {schema}.redrive_messages(p_now bigint, p_transport text, p_letters bigint[], p_original boolean)
RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    v_letters bigint[];
    v_old bigint[];
    v_seqs bigint[];
    v_dropped bigint[] := '{}';
    v_groups text[];
    v_priorities integer[];
    v_firsts integer[];
    v_letter record;
    v_bound text;
    v_item bigint;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        PERFORM {schema}.needs_read_committed();
    END IF;
    IF p_letters IS NULL THEN
        PERFORM 1 FROM {schema}.dead_messages WHERE transport = p_transport ORDER BY letter_id FOR UPDATE;
        v_letters := ARRAY(SELECT letter_id FROM {schema}.dead_messages WHERE transport = p_transport ORDER BY seq);
    ELSE
        PERFORM 1 FROM {schema}.dead_messages WHERE transport = p_transport AND letter_id = ANY (p_letters)
        ORDER BY letter_id FOR UPDATE;
        v_letters := ARRAY(SELECT letter_id FROM {schema}.dead_messages
            WHERE transport = p_transport AND letter_id = ANY (p_letters) ORDER BY seq);
    END IF;
    IF cardinality(v_letters) = 0 THEN
        RETURN v_letters;
    END IF;
    v_old := ARRAY(SELECT d.seq FROM unnest(v_letters) WITH ORDINALITY u (letter_id, at)
        JOIN {schema}.dead_messages d ON d.letter_id = u.letter_id ORDER BY u.at);
    FOR v_letter IN SELECT key, seq FROM {schema}.dead_messages WHERE letter_id = ANY (v_letters) AND key IS NOT NULL
        ORDER BY key, seq
    LOOP
        v_item := {schema}.take_key(p_now, 'transport', p_transport, v_letter.key);
        IF v_letter.key = v_bound OR v_item <> v_letter.seq THEN
            v_dropped := v_dropped || v_letter.seq;
        ELSE
            v_bound := v_letter.key;
        END IF;
    END LOOP;
    SELECT array_agg(heads.group_id), array_agg(heads.priority), array_agg(heads.first)
    INTO v_groups, v_priorities, v_firsts
    FROM (SELECT d.group_id, min(u.at)::integer AS first, (array_agg(d.priority ORDER BY u.at))[1] AS priority
        FROM unnest(v_letters) WITH ORDINALITY u (letter_id, at)
        JOIN {schema}.dead_messages d ON d.letter_id = u.letter_id GROUP BY d.group_id ORDER BY d.group_id) heads;
    v_seqs := {schema}.open_groups(p_transport, v_groups, v_priorities, v_firsts, cardinality(v_letters),
        CASE WHEN p_original THEN v_old END);
    INSERT INTO {schema}.messages (transport, group_id, seq, published_at, key, last_error, previous_error, headers, event)
    SELECT p_transport, d.group_id, u.seq, d.published_at,
        CASE WHEN d.seq NOT IN (SELECT unnest(v_dropped)) THEN d.key END, d.last_error, d.previous_error, d.headers, d.event
    FROM unnest(v_letters, v_seqs) AS u (letter_id, seq) JOIN {schema}.dead_messages d ON d.letter_id = u.letter_id;
    PERFORM {schema}.bind_key('transport', p_transport, d.key, u.seq, d.published_at + t.key_ttl, d.group_id)
    FROM {schema}.transports t, unnest(v_letters, v_seqs) AS u (letter_id, seq)
        JOIN {schema}.dead_messages d ON d.letter_id = u.letter_id
    WHERE t.name = p_transport AND d.key IS NOT NULL AND d.seq NOT IN (SELECT unnest(v_dropped));
    IF p_original THEN
        -- A message put back before the head of a group never claimed moves that group forward (T3).
        PERFORM 1 FROM {schema}.groups WHERE transport = p_transport AND group_id = ANY (v_groups)
        ORDER BY token, group_id FOR NO KEY UPDATE;
        UPDATE {schema}.groups g SET low_seq = least(g.low_seq, v_seqs[u.first]),
            turn = CASE WHEN g.turn < 0 THEN least(g.turn, v_seqs[u.first] - 4611686018427387904) ELSE g.turn END
        FROM (SELECT h.ctid, f.first FROM unnest(v_groups, v_firsts) AS f (group_id, first)
            CROSS JOIN LATERAL (SELECT ctid FROM {schema}.groups
                WHERE transport = p_transport AND group_id = f.group_id OFFSET 0) h) u
        WHERE g.ctid = u.ctid;
    END IF;
    DELETE FROM {schema}.dead_messages WHERE letter_id = ANY (v_letters);
    RETURN v_seqs;
END $$;
