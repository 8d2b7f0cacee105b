-- Changes of state that no writer may make, whatever code it runs: the rules that need the row before the change.
-- SQLSTATE GADS1 reaches Python as TransitionError.

CREATE FUNCTION guard_partition_state() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    partition text := format('%s/%s %s|%s', OLD.source, OLD.query_name, OLD.customer_id, OLD.logical_date);
    rule text;
BEGIN
    IF TG_OP = 'DELETE' THEN
        rule := 'a state row is never deleted';
    ELSIF (NEW.source, NEW.customer_id, NEW.query_name, NEW.logical_date)
            IS DISTINCT FROM (OLD.source, OLD.customer_id, OLD.query_name, OLD.logical_date) THEN
        rule := 'a state row keeps its key';
    ELSIF NEW.version <> OLD.version + 1 THEN
        rule := format('version rises by exactly one, not from %s to %s', OLD.version, NEW.version);
    ELSIF NEW.attempt_count < OLD.attempt_count THEN
        rule := 'attempt_count never falls';
    ELSIF NEW.current_run_id IS DISTINCT FROM OLD.current_run_id AND NEW.status <> 'success' THEN
        rule := 'only a success moves current_run_id';
    ELSIF NEW.current_run_id IS DISTINCT FROM OLD.current_run_id AND NEW.current_run_seq <= OLD.current_run_seq THEN
        rule := 'authority moves only to a newer run';
    ELSIF NEW.current_run_id IS NOT DISTINCT FROM OLD.current_run_id
            AND NEW.current_run_seq IS DISTINCT FROM OLD.current_run_seq THEN
        rule := 'a run keeps its run_seq';
    ELSIF OLD.status <> 'pending' AND NEW.status = 'pending' THEN
        rule := 'only the control plane returns a partition to pending';
    ELSIF OLD.status = 'success' AND NEW.status = 'failed' AND NOT EXISTS (
            SELECT FROM demotion AS open
            WHERE (open.source, open.customer_id, open.query_name, open.logical_date)
                    = (OLD.source, OLD.customer_id, OLD.query_name, OLD.logical_date)
                AND open.run_id = OLD.current_run_id) THEN
        rule := 'a success fails only through a demotion of its run';
    ELSE
        RETURN NEW;
    END IF;
    RAISE EXCEPTION '%: %', partition, rule USING ERRCODE = 'GADS1';
END
$$;

CREATE TRIGGER guard_partition_state BEFORE UPDATE OR DELETE ON partition_state
    FOR EACH ROW EXECUTE FUNCTION guard_partition_state();

CREATE FUNCTION guard_history() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%: what is recorded stays as it was written', TG_TABLE_NAME USING ERRCODE = 'GADS1';
END
$$;

CREATE TRIGGER guard_history BEFORE UPDATE OR DELETE ON partition_attempt
    FOR EACH ROW EXECUTE FUNCTION guard_history();

CREATE TRIGGER guard_history BEFORE UPDATE ON extraction_attempt
    FOR EACH ROW EXECUTE FUNCTION guard_history();

CREATE TRIGGER guard_history BEFORE UPDATE ON load_record
    FOR EACH ROW EXECUTE FUNCTION guard_history();
