-- Settling, sweep and redrive of queues; read the head of 001_2 first.

-- Settling (Q6, Q7, Q9) --------------------------------------------------------------------------------------------

CREATE FUNCTION {schema}.keep_jobs(p_now bigint, p_ids bigint[], p_result text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {schema}.done_jobs (id, done_at, kept_until, run_at, enqueued_at, expires_at, claim_expires_at,
        claimed_at, attempts, releases, visibility, max_attempts, backoff_base, dead_letter_retention, keep_done,
        key_ttl, priority, queue, worker_id, name, key, last_error, previous_error, headers, payload, result)
    SELECT id, p_now, p_now + keep_done, run_at, enqueued_at, expires_at, claim_expires_at,
        claimed_at, attempts, releases, visibility, max_attempts, backoff_base, dead_letter_retention, keep_done,
        key_ttl, priority, queue, worker_id, name, key, last_error, previous_error, headers, payload, p_result
    FROM {schema}.jobs WHERE id = ANY (p_ids) AND keep_done > 0;
END $$;

CREATE FUNCTION {schema}.ack_job(
    p_now bigint, p_queue text, p_id bigint, p_token bigint, p_worker text, p_result text
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint;
    v_deadline bigint;
    v_keep bigint;
BEGIN
    SELECT claim_expires_at, keep_done INTO v_deadline, v_keep FROM {schema}.jobs
    WHERE id = p_id AND queue = p_queue AND token = p_token AND state = 1 AND worker_id = p_worker FOR UPDATE;
    v_now := coalesce(p_now, {schema}.clock_us());
    IF NOT FOUND OR v_deadline < v_now THEN
        RETURN false;
    END IF;
    IF v_keep > 0 THEN
        PERFORM {schema}.keep_jobs(v_now, ARRAY[p_id], p_result);
    END IF;
    DELETE FROM {schema}.jobs WHERE id = p_id;
    RETURN true;
END $$;

-- A token that is null asks for a bare id.
CREATE FUNCTION {schema}.ack_jobs(p_now bigint, p_queue text, p_worker text, p_ids bigint[], p_tokens bigint[])
RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint;
    v_ids bigint[];
    v_deadline bigint;
    v_keep bigint;
BEGIN
    -- In one order everywhere.
    SELECT array_agg(held.id), min(held.claim_expires_at), max(held.keep_done) INTO v_ids, v_deadline, v_keep
    FROM (SELECT u.id, j.claim_expires_at, j.keep_done
        FROM (SELECT * FROM unnest(p_ids, p_tokens) AS u (id, token) ORDER BY u.id OFFSET 0) u
        CROSS JOIN LATERAL (SELECT claim_expires_at, keep_done FROM {schema}.jobs
            WHERE id = u.id AND queue = p_queue AND (token = u.token OR u.token IS NULL)
                AND state = 1 AND worker_id = p_worker FOR UPDATE) j) held;
    v_now := coalesce(p_now, {schema}.clock_us());
    IF v_deadline < v_now THEN
        v_ids := ARRAY(SELECT id FROM {schema}.jobs WHERE id = ANY (v_ids) AND claim_expires_at >= v_now);
    END IF;
    IF v_keep > 0 THEN
        PERFORM {schema}.keep_jobs(v_now, v_ids, NULL);
    END IF;
    DELETE FROM {schema}.jobs WHERE id = ANY (v_ids);
    GET DIAGNOSTICS v_keep = ROW_COUNT;
    RETURN v_keep;
END $$;

CREATE FUNCTION {schema}.retry_job(
    p_now bigint, p_queue text, p_id bigint, p_token bigint, p_worker text, p_error text, p_delay bigint
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint;
    v_deadline bigint;
    v_exhausted boolean;
BEGIN
    SELECT claim_expires_at, attempts >= max_attempts INTO v_deadline, v_exhausted FROM {schema}.jobs
    WHERE id = p_id AND queue = p_queue AND token = p_token AND state = 1 AND worker_id = p_worker FOR UPDATE;
    v_now := coalesce(p_now, {schema}.clock_us());
    IF NOT FOUND OR v_deadline < v_now THEN
        RETURN false;
    END IF;
    IF v_exhausted THEN
        PERFORM {schema}.bury_jobs(v_now, ARRAY[p_id], 'max attempts exceeded', p_error);
    ELSE
        UPDATE {schema}.jobs SET lane = 1, state = 0, run_at = v_now + p_delay, worker_id = NULL, token = NULL,
            claimed_at = NULL, claim_expires_at = NULL,
            previous_error = CASE WHEN p_error IS NULL THEN previous_error ELSE last_error END,
            last_error = coalesce(p_error, last_error)
        WHERE id = p_id;
    END IF;
    RETURN true;
END $$;

CREATE FUNCTION {schema}.fail_job(
    p_now bigint, p_queue text, p_id bigint, p_token bigint, p_worker text, p_error text
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint;
    v_deadline bigint;
BEGIN
    SELECT claim_expires_at INTO v_deadline FROM {schema}.jobs
    WHERE id = p_id AND queue = p_queue AND token = p_token AND state = 1 AND worker_id = p_worker FOR UPDATE;
    v_now := coalesce(p_now, {schema}.clock_us());
    IF NOT FOUND OR v_deadline < v_now THEN
        RETURN false;
    END IF;
    PERFORM {schema}.bury_jobs(v_now, ARRAY[p_id], 'failed', p_error);
    RETURN true;
END $$;

CREATE FUNCTION {schema}.release_job(
    p_now bigint, p_queue text, p_id bigint, p_token bigint, p_worker text, p_delay bigint
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint;
    v_deadline bigint;
BEGIN
    SELECT claim_expires_at INTO v_deadline FROM {schema}.jobs
    WHERE id = p_id AND queue = p_queue AND token = p_token AND state = 1 AND worker_id = p_worker FOR UPDATE;
    v_now := coalesce(p_now, {schema}.clock_us());
    IF NOT FOUND OR v_deadline < v_now THEN
        RETURN false;
    END IF;
    UPDATE {schema}.jobs SET lane = 1, state = 0, run_at = coalesce(v_now + p_delay, run_at), attempts = attempts - 1,
        releases = releases + 1, worker_id = NULL, token = NULL, claimed_at = NULL, claim_expires_at = NULL
    WHERE id = p_id;
    RETURN true;
END $$;

-- The new deadline of each claim, null where it is lost. A job that lapsed under a clock that went back is held again.
CREATE FUNCTION {schema}.heartbeat_jobs(
    p_now bigint, p_queue text, p_ids bigint[], p_tokens bigint[], p_workers text[], p_lastings bigint[]
) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint;
    v_rows tid[];
    v_deadlines bigint[];
BEGIN
    PERFORM 1 FROM {schema}.jobs WHERE id = ANY (p_ids) ORDER BY id FOR UPDATE;
    v_now := coalesce(p_now, {schema}.clock_us());
    SELECT array_agg(CASE WHEN j.ctid IS NOT NULL THEN v_now + u.lasting END ORDER BY u.at), array_agg(j.ctid ORDER BY u.at)
    INTO v_deadlines, v_rows
    FROM unnest(p_ids, p_tokens, p_workers, p_lastings) WITH ORDINALITY AS u (id, token, worker, lasting, at)
        LEFT JOIN LATERAL (SELECT ctid FROM {schema}.jobs
            WHERE id = u.id AND queue = p_queue AND token = u.token AND state = 1 AND worker_id = u.worker
                AND claim_expires_at >= v_now OFFSET 0) j ON true;
    UPDATE {schema}.jobs j SET lane = 0, claim_expires_at = u.deadline
    FROM unnest(v_rows, v_deadlines) AS u (ctid, deadline)
    WHERE j.ctid = u.ctid;
    RETURN v_deadlines;
END $$;

CREATE FUNCTION {schema}.cancel_job(p_queue text, p_id bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM {schema}.jobs WHERE id = p_id AND queue = p_queue;
    RETURN FOUND;
END $$;

-- Sweep (Q12) and redrive (D3) -------------------------------------------------------------------------------------

-- One round: the jobs that expired first, held ones too. How many it looked at, how many it moved.
CREATE FUNCTION {schema}.sweep_jobs(p_now bigint, p_queue text, p_limit bigint, OUT o_seen integer, OUT o_moved integer)
LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint := coalesce(p_now, {schema}.clock_us());
    v_ids bigint[];
BEGIN
    v_ids := ARRAY(SELECT found.id FROM (
            (SELECT expires_at, id FROM {schema}.jobs WHERE queue = p_queue AND lane = 0 AND expires_at <= v_now
                ORDER BY expires_at, id LIMIT p_limit)
            UNION ALL
            (SELECT expires_at, id FROM {schema}.jobs WHERE queue = p_queue AND lane = 1 AND expires_at <= v_now
                ORDER BY expires_at, id LIMIT p_limit)
            UNION ALL
            (SELECT expires_at, id FROM {schema}.jobs WHERE queue = p_queue AND lane = 2 AND expires_at <= v_now
                ORDER BY expires_at, id LIMIT p_limit)
        ) found ORDER BY found.expires_at, found.id LIMIT p_limit);
    o_seen := cardinality(v_ids);
    PERFORM 1 FROM {schema}.jobs WHERE id = ANY (v_ids) ORDER BY id FOR UPDATE;
    v_now := coalesce(p_now, {schema}.clock_us());
    v_ids := ARRAY(SELECT id FROM {schema}.jobs WHERE id = ANY (v_ids) AND expires_at <= v_now ORDER BY expires_at, id);
    o_moved := cardinality(v_ids);
    PERFORM {schema}.bury_jobs(v_now, v_ids, 'expired', NULL);
END $$;

-- One round of forgetting letters and done records whose time is over; the larger of both counts.
CREATE FUNCTION {schema}.forget_jobs(p_now bigint, p_queue text, p_limit bigint) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint := coalesce(p_now, {schema}.clock_us());
    v_letters integer;
    v_done integer;
BEGIN
    DELETE FROM {schema}.dead_jobs WHERE letter_id = ANY (ARRAY(SELECT letter_id FROM {schema}.dead_jobs
        WHERE queue = p_queue AND retained_until <= v_now ORDER BY retained_until LIMIT p_limit FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS v_letters = ROW_COUNT;
    DELETE FROM {schema}.done_jobs WHERE id = ANY (ARRAY(SELECT id FROM {schema}.done_jobs
        WHERE queue = p_queue AND kept_until <= v_now ORDER BY kept_until LIMIT p_limit FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS v_done = ROW_COUNT;
    RETURN greatest(v_letters, v_done);
END $$;

-- The jobs' ids, ascending. p_letters null: all.
CREATE FUNCTION {schema}.redrive_jobs(p_now bigint, p_queue text, p_letters bigint[]) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint;
    v_letters bigint[];
    v_ids bigint[];
    v_dropped bigint[] := '{}';
    v_letter record;
    v_bound text;
    v_item bigint;
BEGIN
    IF p_letters IS NULL THEN
        v_letters := ARRAY(SELECT letter_id FROM {schema}.dead_jobs WHERE queue = p_queue ORDER BY letter_id FOR UPDATE);
    ELSE
        v_letters := ARRAY(SELECT letter_id FROM {schema}.dead_jobs
            WHERE queue = p_queue AND letter_id = ANY (p_letters) ORDER BY letter_id FOR UPDATE);
    END IF;
    FOR v_letter IN SELECT key, id, enqueued_at + key_ttl AS until FROM {schema}.dead_jobs
        WHERE letter_id = ANY (v_letters) AND key IS NOT NULL ORDER BY key, id
    LOOP
        v_item := {schema}.take_key(p_now, 'queue', p_queue, v_letter.key);
        IF v_letter.key = v_bound OR v_item <> v_letter.id THEN
            v_dropped := v_dropped || v_letter.id;
        ELSE
            v_bound := v_letter.key;
            PERFORM {schema}.bind_key('queue', p_queue, v_letter.key, v_letter.id, v_letter.until, NULL);
        END IF;
    END LOOP;
    v_now := coalesce(p_now, {schema}.clock_us());
    INSERT INTO {schema}.jobs (id, run_at, enqueued_at, releases, visibility, max_attempts, backoff_base,
        dead_letter_retention, keep_done, key_ttl, priority, queue, name, key, last_error, previous_error, headers, payload)
    SELECT id, v_now, enqueued_at, releases, visibility, max_attempts, backoff_base,
        dead_letter_retention, keep_done, key_ttl, priority, queue, name,
        CASE WHEN id NOT IN (SELECT unnest(v_dropped)) THEN key END, last_error, previous_error, headers, payload
    FROM {schema}.dead_jobs WHERE letter_id = ANY (v_letters);
    v_ids := ARRAY(SELECT id FROM {schema}.dead_jobs WHERE letter_id = ANY (v_letters) ORDER BY id);
    DELETE FROM {schema}.dead_jobs WHERE letter_id = ANY (v_letters);
    RETURN v_ids;
END $$;
