-- Planner settings of the functions above, measured: planning anew for each call costs three times what the execution of a
-- claim does; where a table has no statistics yet a scan or a hash join looks cheap, and stays in the session's plan when
-- the table has grown. For the same reason what belongs to an array is looked up in a LATERAL that stays one: joined, a
-- table that seemed small would be walked for each element. Sorting has to stay allowed: without it ack_jobs walked the
-- whole primary key.
DO $do$
DECLARE
    v_function regprocedure;
    v_name name;
BEGIN
    FOR v_function, v_name IN SELECT p.oid, p.proname FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
        WHERE p.pronamespace = '{schema}'::regnamespace AND l.lanname = 'plpgsql'
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET plan_cache_mode = force_generic_plan', v_function);
        EXECUTE format('ALTER FUNCTION %s SET enable_seqscan = off', v_function);
        EXECUTE format('ALTER FUNCTION %s SET enable_bitmapscan = off', v_function);
        -- Those that compare arrays with each other may hash.
        IF v_name NOT IN ('open_groups', 'publish_many', 'redrive_messages', 'redrive_jobs') THEN
            EXECUTE format('ALTER FUNCTION %s SET enable_hashjoin = off', v_function);
            EXECUTE format('ALTER FUNCTION %s SET enable_mergejoin = off', v_function);
        END IF;
        -- Whoever renews many must not wait for the one that an open transaction has: the others would lapse meanwhile.
        IF v_name IN ('heartbeat_jobs', 'extend_groups') THEN
            EXECUTE format('ALTER FUNCTION %s SET lock_timeout = ''200ms''', v_function);
        END IF;
    END LOOP;
END $do$;
