-- The hot verbs of queues, one call each. A function's inner statements see, each, what was committed before it began:
-- whatever decides is read again in a new statement once the row is locked, and so is the clock (C7). p_now: an injected
-- clock, null for the server's.
-- Two predicates stand verbatim wherever they are needed (a test compares them):
--   valid claim:  state = 1 AND worker_id = p_worker, the token besides; claim_expires_at >= v_now, once it is locked
--   claimable:    (expires_at IS NULL OR expires_at > v_now)
--                 AND (state = 0 AND run_at <= v_now OR state = 1 AND claim_expires_at < v_now)

CREATE FUNCTION {schema}.clock_us() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $$;

-- Keys (Q15) -------------------------------------------------------------------------------------------------------

-- The item that has taken the key, or null: then its row is locked by this transaction and has to be bound by it. Waits
-- for whoever is just taking it.
CREATE FUNCTION {schema}.take_key(p_now bigint, p_kind text, p_name text, p_key text) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_item bigint;
    v_until bigint;
    v_group text;
    v_live boolean;
BEGIN
    LOOP
        INSERT INTO {schema}.keys (kind, name, key, item, until) VALUES (p_kind, p_name, p_key, -1, 0)
        ON CONFLICT (kind, name, key) DO NOTHING;
        IF FOUND THEN
            RETURN NULL;
        END IF;
        SELECT item, until, group_id INTO v_item, v_until, v_group FROM {schema}.keys
        WHERE kind = p_kind AND name = p_name AND key = p_key FOR UPDATE;
        IF FOUND THEN
            IF v_until > coalesce(p_now, {schema}.clock_us()) THEN
                RETURN v_item;
            END IF;
            IF p_kind = 'queue' THEN
                SELECT EXISTS (SELECT 1 FROM {schema}.jobs WHERE id = v_item) INTO v_live;
            ELSE
                SELECT EXISTS (SELECT 1 FROM {schema}.messages
                    WHERE transport = p_name AND group_id = v_group AND seq = v_item) INTO v_live;
            END IF;
            RETURN CASE WHEN v_live THEN v_item END;
        END IF;
        -- Swept away between the two statements.
    END LOOP;
END $$;

CREATE FUNCTION {schema}.bind_key(
    p_kind text, p_name text, p_key text, p_item bigint, p_until bigint, p_group text
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE {schema}.keys SET item = p_item, until = p_until, group_id = p_group
    WHERE kind = p_kind AND name = p_name AND key = p_key;
END $$;

-- One round: looks at keys whose time is over, after a place in their order; where it stopped, null at the end.
CREATE FUNCTION {schema}.sweep_keys(
    p_now bigint, p_kind text, p_name text, p_until bigint, p_key text, p_limit bigint,
    OUT o_until bigint, OUT o_key text
) LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint := coalesce(p_now, {schema}.clock_us());
    v_keys text[];
BEGIN
    SELECT array_agg(found.key), max(found.until) INTO v_keys, o_until
    FROM (SELECT key, until FROM {schema}.keys
        WHERE kind = p_kind AND name = p_name AND (until, key) > (p_until, p_key) AND until <= v_now
        ORDER BY until, key LIMIT p_limit FOR UPDATE SKIP LOCKED) found;
    -- Under the locks: a key taken again meanwhile stays.
    DELETE FROM {schema}.keys k WHERE k.kind = p_kind AND k.name = p_name AND k.key = ANY (v_keys) AND k.until <= v_now
        AND NOT CASE WHEN p_kind = 'queue' THEN EXISTS (SELECT 1 FROM {schema}.jobs j WHERE j.id = k.item)
            ELSE EXISTS (SELECT 1 FROM {schema}.messages m
                WHERE m.transport = p_name AND m.group_id = k.group_id AND m.seq = k.item) END;
    IF coalesce(cardinality(v_keys), 0) < p_limit THEN
        o_until := NULL;
    ELSE
        o_key := v_keys[p_limit];
    END IF;
END $$;

-- Enqueue (Q1, Q2, Q15) --------------------------------------------------------------------------------------------

CREATE FUNCTION {schema}.enqueue(
    p_now bigint, p_queue text, p_note boolean, p_payload text, p_priority bigint, p_delay bigint, p_run_at bigint,
    p_expires bigint, p_name text, p_key text, p_headers text, p_visibility bigint, p_max_attempts bigint,
    p_backoff_base bigint, p_retention bigint, p_keep_done bigint, p_key_ttl bigint
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint;
    v_id bigint;
BEGIN
    IF p_note THEN
        INSERT INTO {schema}.queues (name) VALUES (p_queue) ON CONFLICT (name) DO NOTHING;
    END IF;
    IF p_key IS NOT NULL THEN
        v_id := {schema}.take_key(p_now, 'queue', p_queue, p_key);
        IF v_id IS NOT NULL THEN
            RETURN v_id;
        END IF;
    END IF;
    v_now := coalesce(p_now, {schema}.clock_us());
    INSERT INTO {schema}.jobs (id, run_at, enqueued_at, expires_at, visibility, max_attempts, backoff_base,
        dead_letter_retention, keep_done, key_ttl, priority, queue, name, key, headers, payload)
    VALUES (nextval('{schema}.job_ids'),
        CASE WHEN p_delay IS NOT NULL THEN v_now + p_delay ELSE coalesce(p_run_at, v_now) END,
        v_now, v_now + p_expires, p_visibility, p_max_attempts, p_backoff_base,
        p_retention, p_keep_done, p_key_ttl, p_priority, p_queue, p_name, p_key, p_headers, p_payload)
    RETURNING id INTO v_id;
    IF p_key IS NOT NULL THEN
        PERFORM {schema}.bind_key('queue', p_queue, p_key, v_id, v_now + p_key_ttl, NULL);
    END IF;
    RETURN v_id;
END $$;

-- p_stamps: the stamps in use, six numbers each; p_stamp_of: which one a job has, from 0; null: all have the first. Other
-- arrays may be null where no job has the thing.
CREATE FUNCTION {schema}.enqueue_many(
    p_now bigint, p_queue text, p_note boolean, p_stamps bigint[], p_payloads text[], p_priorities bigint[],
    p_delays bigint[], p_run_ats bigint[], p_expires bigint[], p_names text[], p_keys text[], p_headers text[],
    p_stamp_of bigint[]
) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint;
    v_ids bigint[];
    v_taken bigint[];
    v_key record;
    v_item bigint;
BEGIN
    IF p_note THEN
        INSERT INTO {schema}.queues (name) VALUES (p_queue) ON CONFLICT (name) DO NOTHING;
    END IF;
    IF p_keys IS NOT NULL THEN
        -- In one order everywhere, so that two calls with the same keys do not wait for each other.
        v_taken := array_fill(NULL::bigint, ARRAY[cardinality(p_keys)]);
        FOR v_key IN SELECT u.key, array_agg(u.at ORDER BY u.at) AS places FROM unnest(p_keys) WITH ORDINALITY u (key, at)
            WHERE u.key IS NOT NULL GROUP BY u.key ORDER BY u.key COLLATE "C"
        LOOP
            v_item := {schema}.take_key(p_now, 'queue', p_queue, v_key.key);
            FOR i IN 1 .. cardinality(v_key.places) LOOP
                -- A second job with this key gets the first one's id: minus the place of the first.
                IF v_item IS NOT NULL OR i > 1 THEN
                    v_taken[v_key.places[i]] := coalesce(v_item, -v_key.places[1]);
                END IF;
            END LOOP;
        END LOOP;
    END IF;
    v_now := coalesce(p_now, {schema}.clock_us());
    IF v_taken IS NULL THEN
        v_ids := ARRAY(SELECT nextval('{schema}.job_ids') FROM generate_series(1, cardinality(p_payloads)));
    ELSE
        v_ids := ARRAY(SELECT CASE WHEN t.item IS NULL THEN nextval('{schema}.job_ids') END
            FROM unnest(v_taken) WITH ORDINALITY t (item, at) ORDER BY t.at);
    END IF;
    INSERT INTO {schema}.jobs (id, run_at, enqueued_at, expires_at, visibility, max_attempts, backoff_base,
        dead_letter_retention, keep_done, key_ttl, priority, queue, name, key, headers, payload)
    SELECT u.id, CASE WHEN u.delay IS NOT NULL THEN v_now + u.delay ELSE coalesce(u.run_at, v_now) END,
        v_now, v_now + u.expires,
        p_stamps[coalesce(u.stamp, 0) * 6 + 1], p_stamps[coalesce(u.stamp, 0) * 6 + 2],
        p_stamps[coalesce(u.stamp, 0) * 6 + 3], p_stamps[coalesce(u.stamp, 0) * 6 + 4],
        p_stamps[coalesce(u.stamp, 0) * 6 + 5], p_stamps[coalesce(u.stamp, 0) * 6 + 6],
        coalesce(u.priority, 0), p_queue, u.name, u.key, u.headers, u.payload
    FROM unnest(v_ids, p_payloads, p_priorities, p_delays, p_run_ats, p_expires, p_names, p_keys, p_headers, p_stamp_of)
        AS u (id, payload, priority, delay, run_at, expires, name, key, headers, stamp)
    WHERE u.id IS NOT NULL;
    IF v_taken IS NOT NULL THEN
        PERFORM {schema}.bind_key('queue', p_queue, j.key, j.id, v_now + j.key_ttl, NULL)
        FROM {schema}.jobs j WHERE j.id = ANY (v_ids) AND j.key IS NOT NULL;
        v_ids := ARRAY(SELECT CASE WHEN t.item IS NULL THEN v_ids[t.at] WHEN t.item < 0 THEN v_ids[-t.item] ELSE t.item END
            FROM unnest(v_taken) WITH ORDINALITY t (item, at) ORDER BY t.at);
    END IF;
    RETURN v_ids;
END $$;

-- Dead letters (D1) ------------------------------------------------------------------------------------------------

-- Move jobs, locked by the caller, to the dead, in this order.
CREATE FUNCTION {schema}.bury_jobs(p_now bigint, p_ids bigint[], p_reason text, p_error text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_letters bigint[];
BEGIN
    IF coalesce(cardinality(p_ids), 0) = 0 THEN
        RETURN;
    END IF;
    v_letters := ARRAY(SELECT nextval('{schema}.letters') FROM generate_series(1, cardinality(p_ids)));
    INSERT INTO {schema}.dead_jobs (letter_id, id, died_at, retained_until, run_at, enqueued_at, expires_at,
        claim_expires_at, claimed_at, attempts, releases, visibility, max_attempts, backoff_base,
        dead_letter_retention, keep_done, key_ttl, priority, queue, reason, worker_id, name, key, last_error,
        previous_error, headers, payload)
    SELECT u.letter, j.id, p_now, p_now + dead_letter_retention, run_at, enqueued_at, expires_at,
        claim_expires_at, claimed_at, attempts, releases, visibility, max_attempts, backoff_base,
        dead_letter_retention, keep_done, key_ttl, priority, queue, p_reason, worker_id, name, key,
        coalesce(p_error, p_reason), last_error, headers, payload
    FROM unnest(p_ids, v_letters) AS u (id, letter)
        CROSS JOIN LATERAL (SELECT * FROM {schema}.jobs WHERE id = u.id OFFSET 0) j;
    DELETE FROM {schema}.jobs WHERE id = ANY (p_ids);
END $$;

-- Claim (Q3-Q5) ----------------------------------------------------------------------------------------------------

-- One round, never waiting: lapsed claims into the claim lane (exhausted ones to the dead), expired jobs out of it.
-- Whether there may be more; null: others are just at it.
CREATE FUNCTION {schema}.clean_jobs(p_now bigint, p_queue text, p_lapsed_from bigint, p_expired_from bigint, p_limit bigint)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    v_lapsed bigint[];
    v_expired bigint[];
    v_dead bigint[];
BEGIN
    v_lapsed := ARRAY(SELECT id FROM {schema}.jobs
        WHERE lane = 0 AND queue = p_queue AND claim_expires_at < p_now AND claim_expires_at >= p_lapsed_from
        ORDER BY claim_expires_at, token LIMIT p_limit FOR UPDATE SKIP LOCKED);
    v_expired := ARRAY(SELECT id FROM {schema}.jobs
        WHERE lane = 1 AND queue = p_queue AND expires_at <= p_now AND expires_at >= p_expired_from
        ORDER BY expires_at LIMIT p_limit FOR UPDATE SKIP LOCKED);
    v_dead := ARRAY(SELECT j.id FROM unnest(v_lapsed) u (id) CROSS JOIN LATERAL (
            SELECT id, claim_expires_at, token FROM {schema}.jobs
            WHERE id = u.id AND (expires_at IS NULL OR expires_at > p_now) AND attempts >= max_attempts OFFSET 0) j
        ORDER BY j.claim_expires_at, j.token);
    UPDATE {schema}.jobs SET lane = CASE WHEN expires_at <= p_now THEN 2 ELSE 1 END
    WHERE id = ANY (v_lapsed || v_expired) AND id NOT IN (SELECT unnest(v_dead));
    PERFORM {schema}.bury_jobs(p_now, v_dead, 'max attempts exceeded', NULL);
    IF cardinality(v_lapsed) + cardinality(v_expired) = 0 THEN
        RETURN NULL;
    END IF;
    RETURN cardinality(v_lapsed) = p_limit OR cardinality(v_expired) = p_limit;
END $$;

-- Up to p_n claims; sort them by token. A row without an id, alone: call again, cleaning is not over (o_backoff_base null:
-- others are just at it). o_cleaned: jobs were set free that may stand before the places given.
-- p_lanes, p_run_ats, p_ids: priorities from the highest down and, for each, from where to look; p_lapsed_from and
-- p_expired_from likewise for the deadlines. Dead rows before those places need not be walked again. Null: look at all.
CREATE FUNCTION {schema}.claim_jobs(
    p_now bigint, p_queue text, p_worker text, p_n bigint, p_visibility bigint, p_lanes bigint[], p_run_ats bigint[],
    p_ids bigint[], p_lapsed_from bigint, p_expired_from bigint
) RETURNS TABLE (
    o_id bigint, o_name text, o_payload text, o_headers text, o_priority bigint, o_attempts bigint,
    o_max_attempts bigint, o_run_at bigint, o_enqueued_at bigint, o_expires_at bigint, o_cleaned boolean, o_token bigint,
    o_claimed_at bigint, o_claim_expires_at bigint, o_releases bigint, o_last_error text, o_visibility bigint,
    o_backoff_base bigint
) LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint := coalesce(p_now, {schema}.clock_us());
    v_suspended_at bigint;
    v_lapsed boolean;
    v_expired boolean;
    v_search boolean;
    v_more boolean := false;
    v_priority integer;
    v_below bigint := 2147483648;
    v_known integer := 1;
    v_run_at bigint;
    v_id bigint;
    v_rows tid[] := '{}';
    v_count integer := 0;
    v_tokens bigint[];
BEGIN
    SELECT (SELECT suspended_at FROM {schema}.queues WHERE name = p_queue),
        EXISTS (SELECT 1 FROM {schema}.jobs WHERE lane = 0 AND queue = p_queue
            AND claim_expires_at < v_now AND claim_expires_at >= p_lapsed_from),
        EXISTS (SELECT 1 FROM {schema}.jobs WHERE lane = 1 AND queue = p_queue
            AND expires_at <= v_now AND expires_at >= p_expired_from),
        p_lanes IS NULL OR EXISTS (SELECT 1 FROM {schema}.jobs WHERE lane = 1 AND queue = p_queue AND priority > p_lanes[1])
    INTO v_suspended_at, v_lapsed, v_expired, v_search;
    IF v_suspended_at IS NOT NULL THEN
        RETURN;
    END IF;
    IF v_lapsed OR v_expired THEN
        v_more := {schema}.clean_jobs(v_now, p_queue, p_lapsed_from, p_expired_from, 1000);
        -- What was set free stands in its old place.
        p_lanes := NULL;
        v_search := true;
    END IF;
    LOOP
        -- A priority nobody told of, between the last one and the next known one; else that one.
        v_priority := NULL;
        IF v_search THEN
            SELECT priority INTO v_priority FROM {schema}.jobs
            WHERE lane = 1 AND queue = p_queue AND priority < v_below
                AND priority > coalesce(p_lanes[v_known], -2147483649)
            ORDER BY priority DESC, run_at, id LIMIT 1;
        END IF;
        v_search := true;
        IF v_priority IS NOT NULL THEN
            v_run_at := -9223372036854775808;
            v_id := v_run_at;
        ELSE
            v_priority := p_lanes[v_known];
            EXIT WHEN v_priority IS NULL;
            v_run_at := p_run_ats[v_known];
            v_id := p_ids[v_known];
            v_known := v_known + 1;
        END IF;
        IF p_n = 1 THEN
            -- In one statement, a quarter faster: of one table it is as safe. Whoever changed the row since the snapshot
            -- makes both the lock and the update judge the row as it is now.
            RETURN QUERY UPDATE {schema}.jobs j SET lane = 0, state = 1, attempts = j.attempts + 1,
                token = nextval('{schema}.tokens'), worker_id = p_worker, claimed_at = v_now,
                claim_expires_at = v_now + coalesce(p_visibility, j.visibility)
            WHERE j.id = (SELECT id FROM {schema}.jobs
                WHERE lane = 1 AND queue = p_queue AND priority = v_priority AND (run_at, id) >= (v_run_at, v_id)
                    AND run_at <= v_now
                    AND (expires_at IS NULL OR expires_at > v_now)
                    AND (state = 0 AND run_at <= v_now OR state = 1 AND claim_expires_at < v_now)
                ORDER BY run_at, id LIMIT 1 FOR UPDATE SKIP LOCKED)
            RETURNING j.id, j.name, j.payload, j.headers, j.priority::bigint, j.attempts, j.max_attempts, j.run_at,
                j.enqueued_at, j.expires_at, v_lapsed OR v_expired, j.token, j.claimed_at, j.claim_expires_at, j.releases,
                j.last_error, coalesce(p_visibility, j.visibility), j.backoff_base;
            IF FOUND THEN
                RETURN;
            END IF;
            v_below := v_priority;
            CONTINUE;
        END IF;
        v_rows := v_rows || ARRAY(SELECT ctid FROM {schema}.jobs
            WHERE lane = 1 AND queue = p_queue AND priority = v_priority AND (run_at, id) >= (v_run_at, v_id)
                AND run_at <= v_now
                AND (expires_at IS NULL OR expires_at > v_now)
                AND (state = 0 AND run_at <= v_now OR state = 1 AND claim_expires_at < v_now)
            ORDER BY run_at, id LIMIT p_n - v_count FOR UPDATE SKIP LOCKED);
        v_count := cardinality(v_rows);
        EXIT WHEN v_count >= p_n;
        v_below := v_priority;
    END LOOP;
    IF v_more AND v_count < p_n OR v_more IS NULL AND v_count = 0 THEN
        RETURN QUERY SELECT NULL::bigint, NULL, NULL, NULL, 0::bigint, 0::bigint, 0::bigint, 0::bigint, 0::bigint, 0::bigint,
            NULL::boolean,
            0::bigint, 0::bigint, 0::bigint, 0::bigint, NULL, 0::bigint, v_more::int::bigint;
        RETURN;
    END IF;
    IF v_count = 0 THEN
        RETURN;
    END IF;
    v_tokens := ARRAY(SELECT nextval('{schema}.tokens') FROM generate_series(1, v_count));
    -- A new statement: the locks are held, and locked rows stay where they are.
    RETURN QUERY UPDATE {schema}.jobs j SET lane = 0, state = 1, attempts = j.attempts + 1, token = u.token,
        worker_id = p_worker, claimed_at = v_now, claim_expires_at = v_now + coalesce(p_visibility, j.visibility)
    FROM unnest(v_rows, v_tokens) AS u (ctid, token)
    WHERE j.ctid = u.ctid
    RETURNING j.id, j.name, j.payload, j.headers, j.priority::bigint, j.attempts, j.max_attempts, j.run_at, j.enqueued_at,
        j.expires_at, v_lapsed OR v_expired, j.token, j.claimed_at, j.claim_expires_at, j.releases, j.last_error,
        coalesce(p_visibility, j.visibility), j.backoff_base;
END $$;
