-- Claims of transports; read the head of 001_4 first.

-- Claim (T1-T4, T7) ------------------------------------------------------------------------------------------------

-- One round, never waiting: lapsed and unparked groups are free again; their token stays, so that a late settlement works
-- until somebody claims. Whether there may be more; null: others are just at it.
CREATE FUNCTION {schema}.free_lapsed(p_now bigint, p_transport text, p_from bigint, p_limit bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_rows tid[];
BEGIN
    v_rows := ARRAY(SELECT ctid FROM {schema}.groups
        WHERE lane = 0 AND transport = p_transport AND deadline < p_now AND deadline >= p_from
        ORDER BY deadline LIMIT p_limit FOR NO KEY UPDATE SKIP LOCKED);
    -- Locked rows stay where they are.
    UPDATE {schema}.groups SET lane = 1 WHERE ctid = ANY (v_rows);
    RETURN CASE WHEN cardinality(v_rows) > 0 THEN cardinality(v_rows) = p_limit END;
END $$;

-- The priorities in use from the floor up; p_known: some, ascending, which need not be looked for.
CREATE FUNCTION {schema}.lanes(p_transport text, p_floor bigint, p_known bigint[]) RETURNS integer[]
LANGUAGE plpgsql AS $$
DECLARE
    v_lanes integer[] := '{}';
    v_above bigint := p_floor - 1::bigint;
    v_known integer := 1;
    v_priority integer;
BEGIN
    LOOP
        SELECT priority INTO v_priority FROM {schema}.groups
        WHERE lane = 1 AND suspended = 0 AND NOT drained AND transport = p_transport AND priority > v_above
            AND priority < coalesce(p_known[v_known], 2147483648)
        ORDER BY priority, turn LIMIT 1;
        IF NOT FOUND THEN
            v_priority := p_known[v_known];
            v_known := v_known + 1;
            EXIT WHEN v_priority IS NULL;
        END IF;
        v_lanes := v_lanes || v_priority;
        v_above := v_priority;
    END LOOP;
    RETURN v_lanes;
END $$;

-- Lock up to p_n free groups of several priorities whose turn it is, from a turn on and before another; their old turns.
CREATE FUNCTION {schema}.lock_turns(
    p_now bigint, p_transport text, p_lanes bigint[], p_from bigint, p_to bigint, p_n bigint,
    OUT o_groups text[], OUT o_turns bigint[], OUT o_rows tid[], OUT o_lows bigint[]
) LANGUAGE plpgsql AS $$
DECLARE
    v_groups text[];
    v_turns bigint[];
    v_rows tid[];
    v_lows bigint[];
    v_seen text[];
    v_seen_turns bigint[];
    v_from bigint := p_from;
    v_limit bigint := p_n + 8;
BEGIN
    -- The lowest turns of each priority are merged, then locked; whoever was quicker is passed over.
    LOOP
        SELECT array_agg(found.group_id), array_agg(found.turn) INTO v_seen, v_seen_turns
        FROM (SELECT g.group_id, g.turn FROM unnest(p_lanes) l (priority) CROSS JOIN LATERAL (
                SELECT group_id, turn FROM {schema}.groups
                WHERE lane = 1 AND suspended = 0 AND NOT drained AND transport = p_transport AND priority = l.priority
                    AND turn >= v_from AND turn < p_to AND NOT coalesce(deadline >= p_now, false)
                ORDER BY turn LIMIT v_limit) g
            ORDER BY g.turn LIMIT v_limit) found;
        EXIT WHEN v_seen IS NULL;
        -- Found by the primary key: the predicate of the free ones is disguised.
        SELECT array_agg(held.group_id), array_agg(held.turn), array_agg(held.ctid), array_agg(held.low_seq)
        INTO v_groups, v_turns, v_rows, v_lows
        FROM (SELECT u.group_id, u.turn, g.ctid, g.low_seq
            FROM unnest(v_seen, v_seen_turns) AS u (group_id, turn)
            CROSS JOIN LATERAL (SELECT ctid, low_seq FROM {schema}.groups
                WHERE transport = p_transport AND group_id = u.group_id
                    AND lane + 0 = 1 AND suspended + 0 = 0 AND drained::text = 'false' AND turn + 0 = u.turn
                    AND NOT coalesce(deadline >= p_now, false)
                FOR NO KEY UPDATE SKIP LOCKED) g
            LIMIT p_n - coalesce(cardinality(o_groups), 0)) held;
        o_groups := o_groups || v_groups;
        o_turns := o_turns || v_turns;
        o_rows := o_rows || v_rows;
        o_lows := o_lows || v_lows;
        EXIT WHEN cardinality(o_groups) >= p_n OR cardinality(v_seen) < v_limit;
        v_from := v_seen_turns[v_limit] + 1;
    END LOOP;
END $$;

-- Up to p_n leases; sort them by token. A row without a seq: call again for the rest, cleaning is not over (o_deliveries
-- null: others are just at it). o_cleaned: groups were set free that may stand before the places given.
-- p_lanes: priorities known to be in use, ascending. p_fresh_from, p_turned_from: from where to look among groups never
-- claimed (turns below 0) and claimed ones; p_lapsed_from likewise for the deadlines. Dead rows before those places need
-- not be walked again. p_fresh: there are, as likely as not, groups never claimed; asking costs as much as looking.
CREATE FUNCTION {schema}.claim_groups(
    p_now bigint, p_transport text, p_worker text, p_n bigint, p_visibility bigint, p_floor bigint, p_lanes bigint[],
    p_fresh_from bigint, p_turned_from bigint, p_lapsed_from bigint, p_fresh boolean
) RETURNS TABLE (
    o_seq bigint, o_group_id text, o_event text, o_token bigint, o_cleaned boolean, o_deliveries bigint,
    o_deadline bigint, o_priority bigint, o_headers text, o_published_at bigint, o_turn bigint, o_options text
) LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint;
    v_options text;
    v_suspended_at bigint;
    v_maximum bigint;
    v_hold boolean;
    v_lapsed boolean;
    v_drained boolean;
    v_more boolean := false;
    v_left bigint := p_n;
    v_got integer;
    v_cleaned integer := 0;
    v_alone boolean;
    v_fresh boolean;
    v_rows tid[];
    v_lows bigint[];
    v_exact tid[];
    v_from bigint;
    v_to bigint;
    v_counted bigint[];
    v_tokens bigint[];
    v_groups text[];
    v_turns bigint[];
    v_out text[];
    v_buried integer := 0;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        PERFORM {schema}.needs_read_committed();
    END IF;
    v_now := coalesce(p_now, {schema}.clock_us());
    SELECT t.options, t.suspended_at, t.max_deliveries, t.hold,
        EXISTS (SELECT 1 FROM {schema}.groups WHERE lane = 0 AND transport = p_transport
            AND deadline < v_now AND deadline >= p_lapsed_from),
        EXISTS (SELECT 1 FROM {schema}.groups WHERE drained AND transport = p_transport),
        -- Whether the one priority known is the only one, and has groups never claimed.
        cardinality(p_lanes) = 1
            AND NOT EXISTS (SELECT 1 FROM {schema}.groups WHERE lane = 1 AND suspended = 0 AND NOT drained
                AND transport = p_transport AND priority >= p_floor AND priority < p_lanes[1])
            AND NOT EXISTS (SELECT 1 FROM {schema}.groups WHERE lane = 1 AND suspended = 0 AND NOT drained
                AND transport = p_transport AND priority > p_lanes[1]),
        p_fresh OR EXISTS (SELECT 1 FROM {schema}.groups WHERE lane = 1 AND suspended = 0 AND NOT drained
                AND transport = p_transport AND priority = p_lanes[1] AND turn >= p_fresh_from AND turn < 0)
    INTO v_options, v_suspended_at, v_maximum, v_hold, v_lapsed, v_drained, v_alone, v_fresh
    FROM {schema}.transports t WHERE t.name = p_transport;
    IF v_options IS NULL OR v_suspended_at IS NOT NULL THEN
        RETURN;
    END IF;
    IF v_lapsed THEN
        v_more := {schema}.free_lapsed(v_now, p_transport, p_lapsed_from, 1000);
    END IF;
    IF v_drained THEN
        PERFORM {schema}.tidy_drained(p_transport, 1000);
    END IF;
    IF v_lapsed OR v_drained THEN
        -- What was set free stands in its old place.
        p_fresh_from := -9223372036854775808;
        p_turned_from := 0;
        v_alone := false;
        v_fresh := true;
    END IF;
    IF v_alone IS NOT TRUE THEN
        p_lanes := {schema}.lanes(p_transport, p_floor, p_lanes);
        v_fresh := true;
    END IF;
    WHILE v_left > 0 LOOP
        v_from := CASE WHEN v_fresh THEN p_fresh_from ELSE p_turned_from END;
        v_to := CASE WHEN v_fresh THEN 0 ELSE 9223372036854775807 END;
        IF cardinality(p_lanes) = 1 THEN
            SELECT array_agg(held.group_id), array_agg(held.turn), array_agg(held.ctid), array_agg(held.low_seq),
                array_agg(held.counted_seq)
            INTO v_groups, v_turns, v_rows, v_lows, v_counted
            FROM (SELECT group_id, turn, ctid, low_seq, counted_seq FROM {schema}.groups
                WHERE lane = 1 AND suspended = 0 AND NOT drained AND transport = p_transport AND priority = p_lanes[1]
                    AND turn >= v_from AND turn < v_to
                    AND NOT coalesce(deadline >= v_now, false)
                ORDER BY turn LIMIT v_left FOR NO KEY UPDATE SKIP LOCKED) held;
        ELSE
            SELECT o_groups, o_turns, o_rows, o_lows, o_turns INTO v_groups, v_turns, v_rows, v_lows, v_counted
            FROM {schema}.lock_turns(v_now, p_transport, p_lanes, v_from, v_to, v_left);
        END IF;
        IF v_groups IS NULL THEN
            EXIT WHEN NOT v_fresh;
            v_fresh := false;
            CONTINUE;
        END IF;
        -- New statements from here on: the locks are held.
        v_out := '{}';
        IF v_maximum IS NOT NULL THEN
            SELECT o_out, o_buried INTO v_out, v_buried
            FROM {schema}.bury_poisoned(v_now, p_transport, v_groups, v_maximum, v_hold);
            v_cleaned := v_cleaned + v_buried;
        END IF;
        IF v_buried > 0 THEN
            -- Burying moved rows.
            SELECT array_agg(u.group_id ORDER BY u.at), array_agg(u.turn ORDER BY u.at), array_agg(g.ctid ORDER BY u.at),
                array_agg(g.low_seq ORDER BY u.at)
            INTO v_groups, v_turns, v_rows, v_lows
            FROM unnest(v_groups, v_turns) WITH ORDINALITY AS u (group_id, turn, at)
                CROSS JOIN LATERAL (SELECT ctid, low_seq FROM {schema}.groups
                    WHERE transport = p_transport AND group_id = u.group_id OFFSET 0) g
            WHERE u.group_id NOT IN (SELECT unnest(v_out));
        END IF;
        IF v_groups IS NOT NULL THEN
            -- A message that was counted and is no longer the head (a lower seq appeared) gets its count back.
            IF array_remove(v_counted, NULL) <> '{}' THEN
                UPDATE {schema}.messages m SET deliveries = u.deliveries
                FROM (SELECT c.ctid, g.deliveries FROM {schema}.groups g
                        CROSS JOIN LATERAL (SELECT ctid FROM {schema}.messages
                            WHERE transport = p_transport AND group_id = g.group_id AND seq = g.counted_seq OFFSET 0) c
                    WHERE g.ctid = ANY (v_rows) AND EXISTS (SELECT 1 FROM {schema}.messages h
                        WHERE h.transport = p_transport AND h.group_id = g.group_id
                            AND h.seq >= g.low_seq AND h.seq < g.counted_seq OFFSET 0) OFFSET 0) u
                WHERE m.ctid = u.ctid;
            END IF;
            IF cardinality(v_groups) = 1 THEN
                v_tokens := ARRAY[nextval('{schema}.tokens')];
            ELSE
                v_tokens := ARRAY(SELECT nextval('{schema}.tokens') FROM generate_series(1, cardinality(v_groups)));
            END IF;
            v_exact := '{}';
            IF v_tokens[1] % 7 = 0 THEN
                -- Nobody is publishing to these: what the next statement sees is all there is.
                v_exact := ARRAY(SELECT held.ctid FROM (SELECT ctid, group_id FROM {schema}.groups
                        WHERE ctid = ANY (v_rows) OFFSET 0 FOR UPDATE SKIP LOCKED) held
                    WHERE {schema}.nobody_publishes(p_transport, held.group_id));
            END IF;
            RETURN QUERY UPDATE {schema}.groups g SET lane = 0, token = u.token, turn = u.token, leased_seq = m.seq,
                deadline = v_now + p_visibility, held_since = v_now, last_claimed_at = v_now, worker_id = p_worker,
                deliveries = 1 + CASE WHEN g.counted_seq = m.seq THEN g.deliveries ELSE m.deliveries END,
                counted_seq = m.seq,
                low_seq = CASE WHEN v_exact <> '{}' AND g.ctid IN (SELECT unnest(v_exact)) THEN m.seq ELSE g.low_seq END
            FROM unnest(v_groups, v_turns, v_rows, v_lows, v_tokens) AS u (group_id, turn, ctid, low, token)
                CROSS JOIN LATERAL (SELECT seq, event, headers, deliveries, published_at FROM {schema}.messages
                    WHERE transport = p_transport AND group_id = u.group_id AND seq >= u.low ORDER BY seq LIMIT 1) m
            WHERE g.ctid = u.ctid
            RETURNING m.seq, g.group_id, m.event, g.token, v_lapsed OR v_drained, g.deliveries, g.deadline,
                g.priority::bigint, m.headers, m.published_at, u.turn, v_options;
            GET DIAGNOSTICS v_got = ROW_COUNT;
            v_left := v_left - v_got;
            IF v_got < cardinality(v_groups) THEN
                -- Somebody deleted messages by hand. Left free, such a group would be in the way of every claim.
                v_out := v_groups;
                UPDATE {schema}.groups g SET drained = true
                WHERE g.transport = p_transport AND g.group_id = ANY (v_groups) AND NOT EXISTS (SELECT 1 FROM {schema}.messages m
                        WHERE m.transport = p_transport AND m.group_id = g.group_id OFFSET 0);
            END IF;
        END IF;
        EXIT WHEN v_cleaned >= 1000;
        -- Nothing was put out of the claim and fewer were found: this part is done.
        IF cardinality(v_out) = 0 AND v_left > 0 THEN
            EXIT WHEN NOT v_fresh;
            v_fresh := false;
        END IF;
    END LOOP;
    v_more := v_more OR v_cleaned >= 1000;
    IF v_left > 0 AND v_more OR v_left = p_n AND v_more IS NULL THEN
        RETURN QUERY SELECT NULL::bigint, NULL, NULL, 0::bigint, NULL::boolean, v_more::int::bigint, 0::bigint, 0::bigint,
            NULL, 0::bigint, 0::bigint, NULL;
    END IF;
END $$;
