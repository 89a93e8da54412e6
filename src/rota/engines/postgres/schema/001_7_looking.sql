-- Looking: the next due instants, which every idle waiter asks for, and views for people with real timestamps.

-- When something may become claimable by time alone; null for a suspended queue. One probe per distinct priority.
CREATE FUNCTION {schema}.next_due_job(p_now bigint, p_queue text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint := coalesce(p_now, {schema}.clock_us());
    v_below bigint := 2147483648;
    v_due bigint;
    v_run_at bigint;
BEGIN
    IF (SELECT suspended_at FROM {schema}.queues WHERE name = p_queue) IS NOT NULL THEN
        RETURN NULL;
    END IF;
    v_due := least(
        (SELECT claim_expires_at + 1 FROM {schema}.jobs WHERE lane = 0 AND queue = p_queue AND claim_expires_at >= v_now
            ORDER BY claim_expires_at LIMIT 1),
        (SELECT claim_expires_at + 1 FROM {schema}.jobs
            WHERE lane = 1 AND state = 1 AND queue = p_queue AND claim_expires_at >= v_now
            ORDER BY claim_expires_at LIMIT 1));
    LOOP
        SELECT priority INTO v_below FROM {schema}.jobs WHERE lane = 1 AND queue = p_queue AND priority < v_below
        ORDER BY priority DESC, run_at, id LIMIT 1;
        EXIT WHEN NOT FOUND;
        SELECT run_at INTO v_run_at FROM {schema}.jobs
        WHERE lane = 1 AND queue = p_queue AND priority = v_below AND run_at > v_now ORDER BY run_at, id LIMIT 1;
        v_due := least(v_due, v_run_at);
    END LOOP;
    RETURN v_due;
END $$;

CREATE FUNCTION {schema}.next_due_group(p_now bigint, p_transport text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint := coalesce(p_now, {schema}.clock_us());
BEGIN
    IF (SELECT suspended_at FROM {schema}.transports WHERE name = p_transport) IS NOT NULL THEN
        RETURN NULL;
    END IF;
    RETURN (SELECT deadline + 1 FROM {schema}.groups WHERE lane = 0 AND transport = p_transport AND deadline >= v_now
        ORDER BY deadline LIMIT 1);
END $$;

CREATE FUNCTION {schema}.instant(p_at bigint) RETURNS timestamptz LANGUAGE sql IMMUTABLE AS
$$ SELECT to_timestamp(0) + p_at * interval '1 microsecond' $$;

CREATE VIEW {schema}.readable_jobs AS
SELECT id, queue, CASE state WHEN 0 THEN 'pending' ELSE 'processing' END AS state, name, payload, headers, priority,
    attempts, max_attempts, {schema}.instant(run_at) AS run_at, {schema}.instant(enqueued_at) AS enqueued_at,
    {schema}.instant(expires_at) AS expires_at, worker_id, {schema}.instant(claimed_at) AS claimed_at,
    {schema}.instant(claim_expires_at) AS claim_expires_at, releases, key, last_error
FROM {schema}.jobs
UNION ALL
SELECT id, queue, 'done', name, payload, headers, priority, attempts, max_attempts, {schema}.instant(run_at),
    {schema}.instant(enqueued_at), {schema}.instant(expires_at), worker_id, {schema}.instant(claimed_at),
    {schema}.instant(claim_expires_at), releases, key, last_error
FROM {schema}.done_jobs
UNION ALL
SELECT id, queue, 'dead', name, payload, headers, priority, attempts, max_attempts, {schema}.instant(run_at),
    {schema}.instant(enqueued_at), {schema}.instant(expires_at), worker_id, {schema}.instant(claimed_at),
    {schema}.instant(claim_expires_at), releases, key, last_error
FROM {schema}.dead_jobs;

CREATE VIEW {schema}.readable_groups AS
SELECT transport, group_id, priority,
    CASE WHEN suspended = 1 THEN 'suspended' WHEN deadline IS NULL OR deadline < {schema}.clock_us() THEN 'ready'
        WHEN token IS NOT NULL THEN 'leased' ELSE 'parked' END AS state,
    worker_id, {schema}.instant(deadline) AS until, {schema}.instant(last_claimed_at) AS last_claimed_at
FROM {schema}.groups g
WHERE EXISTS (SELECT 1 FROM {schema}.messages m WHERE m.transport = g.transport AND m.group_id = g.group_id);

CREATE VIEW {schema}.readable_messages AS
SELECT m.transport, m.group_id, m.seq, m.event, m.headers,
    CASE WHEN g.counted_seq = m.seq THEN g.deliveries ELSE m.deliveries END AS deliveries,
    {schema}.instant(m.published_at) AS published_at, m.key, m.last_error
FROM {schema}.messages m JOIN {schema}.groups g ON g.transport = m.transport AND g.group_id = m.group_id;
