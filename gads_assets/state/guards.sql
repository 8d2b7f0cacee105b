-- Changes that no writer may make, whatever its role and whatever code it runs. SQLSTATE GADS1 reaches Python as
-- TransitionError. What a row alone shows is a constraint in tables.py; here is what takes more than the row.

-- Every function looks in this schema before it looks among the temporary tables: PostgreSQL's own order is the other
-- way round, and whoever makes a temporary `demotion` would have the guards read that one.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- Roles belong to the whole server, so each carries its database's name. PostgreSQL would cut a name after 63 bytes
-- without a word, and two databases could then share a role: such a name keeps its beginning and gets a digest.
CREATE FUNCTION gads_role(kind text) RETURNS text LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT CASE
        WHEN octet_length(current_database()) + 1 + octet_length(kind) <= 63 THEN current_database() || '_' || kind
        ELSE left(current_database(), 10) || '_' || left(md5(current_database()), 8) || '_' || kind
    END
$$;

-- With the rights of that role, which a superuser always has unless it acts as another.
CREATE FUNCTION acts_as(kind text) RETURNS boolean LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT coalesce(pg_has_role(to_regrole(quote_ident(gads_role(kind))), 'MEMBER'), false)
$$;

CREATE FUNCTION refuse(source text, query_name text, customer_id text, logical_date date, rule text)
    RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%/% %|%: %', source, query_name, customer_id, logical_date, rule USING ERRCODE = 'GADS1';
END
$$;

-- The changes of a state that its row before and after show to be wrong.
CREATE FUNCTION guard_partition_state() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    is_counted boolean := NEW.attempt_count IS DISTINCT FROM OLD.attempt_count;
    is_moved boolean := NEW.current_run_id IS DISTINCT FROM OLD.current_run_id;
    next_version bigint := coalesce(OLD.version, 0) + 1;
    rule text;
BEGIN
    -- A verdict on a partition that was adopted goes above the floor: a pointer of the warehouse carries that version.
    IF is_counted AND NEW.version > next_version THEN
        SELECT greatest(next_version, max(adopted.version_floor) + 1) INTO next_version FROM override_log AS adopted
        WHERE (adopted.source, adopted.customer_id, adopted.query_name, adopted.logical_date)
                = (NEW.source, NEW.customer_id, NEW.query_name, NEW.logical_date)
            AND adopted.action = 'adopt';
    END IF;
    IF TG_OP = 'DELETE' THEN
        rule := 'a state row is never deleted';
    ELSIF TG_OP = 'INSERT' THEN
        IF NEW.status = 'pending' THEN
            rule := 'a partition is pending without a row; its first row is a verdict';
        ELSIF NEW.version <> next_version OR NEW.attempt_count <> 1 THEN
            rule := format('a first verdict is attempt 1 at version %s, not %s at %s',
                next_version, NEW.attempt_count, NEW.version);
        ELSIF NEW.status = 'failed'
                AND num_nonnulls(NEW.current_run_id, NEW.schema_version, NEW.record_count) > 0 THEN
            rule := 'only a success moves current_run_id';
        END IF;
    ELSIF (NEW.source, NEW.customer_id, NEW.query_name, NEW.logical_date)
            IS DISTINCT FROM (OLD.source, OLD.customer_id, OLD.query_name, OLD.logical_date) THEN
        rule := 'a state row keeps its key';
    ELSIF NEW.version <> next_version THEN
        rule := format('version rises from %s to exactly %s, not to %s', OLD.version, next_version, NEW.version);
    ELSIF NEW.attempt_count < OLD.attempt_count THEN
        rule := 'attempt_count never falls';
    ELSIF NEW.attempt_count > OLD.attempt_count + 1 THEN
        rule := 'a verdict is one attempt';
    ELSIF is_moved AND NEW.status <> 'success' THEN
        rule := 'only a success moves current_run_id';
    ELSIF is_moved AND NEW.current_run_seq <= OLD.current_run_seq THEN
        rule := 'authority moves only to a newer run';
    ELSIF NOT is_moved AND (NEW.current_run_seq, NEW.schema_version, NEW.record_count)
            IS DISTINCT FROM (OLD.current_run_seq, OLD.schema_version, OLD.record_count) THEN
        rule := 'a run keeps its run_seq, schema_version and record_count';
    ELSIF OLD.status = 'success' AND NEW.status = 'pending' THEN
        rule := 'a success never returns to pending';
    ELSIF OLD.status = 'failed' AND NEW.status = 'pending' THEN
        IF is_counted OR NOT acts_as('operator') THEN
            rule := 'only the control plane returns a partition to pending';
        ELSIF NOT EXISTS (
                SELECT FROM override_log AS logged
                WHERE (logged.source, logged.customer_id, logged.query_name, logged.logical_date)
                        = (NEW.source, NEW.customer_id, NEW.query_name, NEW.logical_date)
                    AND logged.state_version = NEW.version AND logged.action = 'retry') THEN
            rule := 'a return to pending is logged as an override first';
        END IF;
    ELSIF OLD.status = 'success' AND NEW.status = 'failed' THEN
        IF is_counted OR NOT EXISTS (
                SELECT FROM demotion AS open
                WHERE (open.source, open.customer_id, open.query_name, open.logical_date)
                        = (OLD.source, OLD.customer_id, OLD.query_name, OLD.logical_date)
                    AND (open.run_id, open.error_message) = (OLD.current_run_id, NEW.error_message)) THEN
            rule := 'a success fails only through a demotion of its run, and for its reason';
        ELSIF NOT acts_as('validator') THEN
            rule := 'only the validator finishes a demotion';
        END IF;
    ELSIF NOT is_counted THEN
        rule := 'a state changes by a verdict, which is counted';
    END IF;
    IF rule IS NULL THEN
        RETURN NEW;
    ELSIF TG_OP = 'INSERT' THEN
        PERFORM refuse(NEW.source, NEW.query_name, NEW.customer_id, NEW.logical_date, rule);
    ELSE
        PERFORM refuse(OLD.source, OLD.query_name, OLD.customer_id, OLD.logical_date, rule);
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER guard_partition_state BEFORE INSERT OR UPDATE OR DELETE ON partition_state
    FOR EACH ROW EXECUTE FUNCTION guard_partition_state();

-- A counted change is what its attempt made of the state before: the table in domain/state.py, line by line. A finished
-- demotion is closed. At commit, because the attempt is written, and the demotion closed, after the state changes.
CREATE FUNCTION guard_verdict() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    was_success boolean := coalesce(OLD.status = 'success', false);
    is_moved boolean := NEW.current_run_id IS DISTINCT FROM OLD.current_run_id;
    attempt partition_attempt%ROWTYPE;
    follows boolean;
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.attempt_count = OLD.attempt_count THEN
        IF was_success AND NEW.status = 'failed' AND EXISTS (
                SELECT FROM demotion AS open
                WHERE (open.source, open.customer_id, open.query_name, open.logical_date)
                    = (NEW.source, NEW.customer_id, NEW.query_name, NEW.logical_date)) THEN
            PERFORM refuse(NEW.source, NEW.query_name, NEW.customer_id, NEW.logical_date,
                format('the failure at version %s leaves its demotion open', NEW.version));
        END IF;
        RETURN NULL;
    END IF;
    SELECT a.* INTO attempt FROM partition_attempt AS a
    WHERE (a.source, a.customer_id, a.query_name, a.logical_date, a.attempt_number)
        = (NEW.source, NEW.customer_id, NEW.query_name, NEW.logical_date, NEW.attempt_count);
    IF NOT FOUND THEN
        PERFORM refuse(NEW.source, NEW.query_name, NEW.customer_id, NEW.logical_date,
            format('attempt %s is counted but not recorded', NEW.attempt_count));
    END IF;
    follows := CASE attempt.outcome
        WHEN 'accepted' THEN NEW.status = 'success'
            AND (NEW.current_run_id, NEW.current_run_seq, NEW.schema_version, NEW.record_count)
                = (attempt.run_id, attempt.run_seq, attempt.schema_version, attempt.record_count)
        WHEN 'rejected' THEN NOT is_moved AND NEW.status = CASE WHEN was_success THEN 'success' ELSE 'failed' END
            AND NOT (was_success AND attempt.run_id = NEW.current_run_id)
            AND (was_success OR NEW.error_message = attempt.error_message)
        WHEN 'superseded' THEN NOT is_moved AND NEW.status = OLD.status AND attempt.run_seq <= NEW.current_run_seq
            AND attempt.run_id <> NEW.current_run_id AND NEW.error_message IS NOT DISTINCT FROM OLD.error_message
        WHEN 'demoted' THEN NOT is_moved AND was_success AND NEW.status = 'success'
            AND attempt.run_id = NEW.current_run_id
    END;
    IF follows IS NOT TRUE THEN
        PERFORM refuse(NEW.source, NEW.query_name, NEW.customer_id, NEW.logical_date,
            format('%s at version %s does not follow from attempt %s, which %s run %s',
                NEW.status, NEW.version, NEW.attempt_count, attempt.outcome, attempt.run_id));
    END IF;
    RETURN NULL;
END
$$;

CREATE CONSTRAINT TRIGGER guard_verdict AFTER INSERT OR UPDATE ON partition_state
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION guard_verdict();

CREATE FUNCTION guard_attempt() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM refuse(a.source, a.query_name, a.customer_id, a.logical_date,
        format('attempt %s at version %s is not the one that its state counts', a.attempt_number, a.state_version))
    FROM recorded AS a LEFT JOIN partition_state AS s USING (source, customer_id, query_name, logical_date)
    WHERE (s.attempt_count, s.version) IS DISTINCT FROM (a.attempt_number, a.state_version);
    PERFORM refuse(a.source, a.query_name, a.customer_id, a.logical_date,
        format('run %s was extracted with run_seq %s, not %s', a.run_id, e.run_seq, a.run_seq))
    FROM recorded AS a JOIN extraction_attempt AS e USING (source, customer_id, query_name, logical_date, run_id)
    WHERE e.run_seq <> a.run_seq;
    PERFORM refuse(a.source, a.query_name, a.customer_id, a.logical_date,
        CASE WHEN earlier.run_seq <> a.run_seq
            THEN format('run %s was judged with run_seq %s, not %s', a.run_id, earlier.run_seq, a.run_seq)
            ELSE format('run %s was accepted with other content, and a sealed run does not change', a.run_id)
        END)
    FROM recorded AS a JOIN partition_attempt AS earlier USING (source, customer_id, query_name, logical_date, run_id)
    WHERE earlier.attempt_number < a.attempt_number
        AND (earlier.run_seq <> a.run_seq
            OR (earlier.outcome, a.outcome) = ('accepted', 'accepted')
                AND ((earlier.schema_version, earlier.record_count, earlier.content_digest)
                        <> (a.schema_version, a.record_count, a.content_digest)
                    OR earlier.seal_sha256 <> a.seal_sha256));
    RETURN NULL;
END
$$;

CREATE TRIGGER guard_attempt AFTER INSERT ON partition_attempt
    REFERENCING NEW TABLE AS recorded FOR EACH STATEMENT EXECUTE FUNCTION guard_attempt();

CREATE FUNCTION guard_demotion() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    rule text;
BEGIN
    IF TG_OP = 'UPDATE' AND (NEW.source, NEW.customer_id, NEW.query_name, NEW.logical_date)
            IS DISTINCT FROM (OLD.source, OLD.customer_id, OLD.query_name, OLD.logical_date) THEN
        rule := 'a demotion keeps its key';
    ELSIF TG_OP <> 'DELETE' AND NOT EXISTS (
            SELECT FROM partition_state AS s JOIN partition_attempt AS a
                USING (source, customer_id, query_name, logical_date)
            WHERE (source, customer_id, query_name, logical_date)
                    = (NEW.source, NEW.customer_id, NEW.query_name, NEW.logical_date)
                AND (s.status, s.current_run_id, s.version) = ('success', NEW.run_id, NEW.state_version)
                AND (a.validation_id, a.outcome, a.run_id, a.state_version, a.error_message)
                    = (NEW.validation_id, 'demoted', NEW.run_id, NEW.state_version, NEW.error_message)) THEN
        rule := 'a demotion is of the authority of a success, at the version and with the error of the attempt '
            'that rejected it';
    ELSIF TG_OP = 'DELETE' AND EXISTS (
            SELECT FROM partition_state AS s
            WHERE (s.source, s.customer_id, s.query_name, s.logical_date)
                    = (OLD.source, OLD.customer_id, OLD.query_name, OLD.logical_date)
                AND (s.status, s.current_run_id) = ('success', OLD.run_id)) THEN
        rule := 'a demotion stays open until its failure shows';
    END IF;
    IF rule IS NOT NULL AND TG_OP = 'INSERT' THEN
        PERFORM refuse(NEW.source, NEW.query_name, NEW.customer_id, NEW.logical_date, rule);
    ELSIF rule IS NOT NULL THEN
        PERFORM refuse(OLD.source, OLD.query_name, OLD.customer_id, OLD.logical_date, rule);
    END IF;
    RETURN coalesce(NEW, OLD);
END
$$;

CREATE TRIGGER guard_demotion BEFORE INSERT OR UPDATE OR DELETE ON demotion
    FOR EACH ROW EXECUTE FUNCTION guard_demotion();

CREATE FUNCTION guard_load() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM refuse(l.source, l.query_name, l.customer_id, l.logical_date,
        format('%s rows of run %s are recorded as loaded, which no attempt accepted so', l.record_count, l.run_id))
    FROM recorded AS l
    WHERE NOT EXISTS (
        SELECT FROM partition_attempt AS a
        WHERE (a.source, a.customer_id, a.query_name, a.logical_date)
                = (l.source, l.customer_id, l.query_name, l.logical_date)
            AND (a.outcome, a.run_id, a.schema_version, a.record_count, a.content_digest)
                = ('accepted', l.run_id, l.schema_version, l.record_count, l.content_digest));
    RETURN NULL;
END
$$;

CREATE TRIGGER guard_load AFTER INSERT ON load_record
    REFERENCING NEW TABLE AS recorded FOR EACH STATEMENT EXECUTE FUNCTION guard_load();

-- At commit, because an override is logged before it is carried out.
CREATE FUNCTION guard_override() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF NOT EXISTS (
            SELECT FROM partition_state AS s
            WHERE (s.source, s.customer_id, s.query_name, s.logical_date)
                    = (NEW.source, NEW.customer_id, NEW.query_name, NEW.logical_date)
                AND (s.status, s.version) = ('pending', NEW.state_version)) THEN
        PERFORM refuse(NEW.source, NEW.query_name, NEW.customer_id, NEW.logical_date,
            format('an override to version %s is logged with the return to pending that makes it', NEW.state_version));
    END IF;
    RETURN NULL;
END
$$;

CREATE CONSTRAINT TRIGGER guard_override AFTER INSERT ON override_log
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.state_version IS NOT NULL) EXECUTE FUNCTION guard_override();

CREATE FUNCTION guard_history() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM refuse(OLD.source, OLD.query_name, OLD.customer_id, OLD.logical_date,
        format('what %s holds stays as it was written', TG_TABLE_NAME));
    RETURN NULL;
END
$$;

CREATE FUNCTION guard_ledger() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    RAISE EXCEPTION '%: a table of the ledger is never emptied', TG_TABLE_NAME USING ERRCODE = 'GADS1';
END
$$;

CREATE TRIGGER guard_history BEFORE UPDATE OR DELETE ON partition_attempt
    FOR EACH ROW EXECUTE FUNCTION guard_history();

CREATE TRIGGER guard_history BEFORE UPDATE OR DELETE ON extraction_attempt
    FOR EACH ROW EXECUTE FUNCTION guard_history();

CREATE TRIGGER guard_history BEFORE UPDATE OR DELETE ON load_record
    FOR EACH ROW EXECUTE FUNCTION guard_history();

CREATE TRIGGER guard_history BEFORE UPDATE OR DELETE ON override_log
    FOR EACH ROW EXECUTE FUNCTION guard_history();

CREATE TRIGGER guard_ledger BEFORE TRUNCATE ON partition_state
    FOR EACH STATEMENT EXECUTE FUNCTION guard_ledger();

CREATE TRIGGER guard_ledger BEFORE TRUNCATE ON partition_attempt
    FOR EACH STATEMENT EXECUTE FUNCTION guard_ledger();

CREATE TRIGGER guard_ledger BEFORE TRUNCATE ON extraction_attempt
    FOR EACH STATEMENT EXECUTE FUNCTION guard_ledger();

CREATE TRIGGER guard_ledger BEFORE TRUNCATE ON load_record
    FOR EACH STATEMENT EXECUTE FUNCTION guard_ledger();

CREATE TRIGGER guard_ledger BEFORE TRUNCATE ON demotion
    FOR EACH STATEMENT EXECUTE FUNCTION guard_ledger();

CREATE TRIGGER guard_ledger BEFORE TRUNCATE ON override_log
    FOR EACH STATEMENT EXECUTE FUNCTION guard_ledger();

-- What was used stays used: a count that falls would let the day's operations be used twice.
CREATE FUNCTION guard_operations() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.used >= OLD.used
            AND (NEW.origin, NEW.token_scope, NEW.day) = (OLD.origin, OLD.token_scope, OLD.day) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'api_operations: what was used of % on % never falls', OLD.origin, OLD.day USING ERRCODE = 'GADS1';
END
$$;

CREATE TRIGGER guard_operations BEFORE UPDATE OR DELETE ON api_operations
    FOR EACH ROW EXECUTE FUNCTION guard_operations();

CREATE TRIGGER guard_ledger BEFORE TRUNCATE ON api_operations
    FOR EACH STATEMENT EXECUTE FUNCTION guard_ledger();

-- A partition is in one run at a time: its lease changes hands only when the run that has it is gone.
CREATE FUNCTION guard_lease() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF (NEW.source, NEW.customer_id, NEW.query_name, NEW.logical_date)
            IS DISTINCT FROM (OLD.source, OLD.customer_id, OLD.query_name, OLD.logical_date) THEN
        PERFORM refuse(OLD.source, OLD.query_name, OLD.customer_id, OLD.logical_date, 'a lease keeps its key');
    ELSIF NEW.dagster_run_id <> OLD.dagster_run_id AND EXISTS (
            SELECT FROM run_lease AS held
            WHERE held.dagster_run_id = OLD.dagster_run_id AND (
                held.lease_until > statement_timestamp()
                OR hashtextextended('process of run ' || held.dagster_run_id, 0) IN (
                    SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks
                    WHERE locktype = 'advisory' AND objsubid = 1 AND granted
                        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())))) THEN
        PERFORM refuse(OLD.source, OLD.query_name, OLD.customer_id, OLD.logical_date,
            format('run %s has it, and lives', OLD.dagster_run_id));
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER guard_lease BEFORE UPDATE ON partition_lease
    FOR EACH ROW EXECUTE FUNCTION guard_lease();
