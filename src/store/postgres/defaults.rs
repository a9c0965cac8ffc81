//! The settings that a role or a database may have, and that would break the work of a session: each session puts them
//! right first. What a session needs besides stands where it is opened. The search path stays the role's: it says where
//! the ledger is.

/// The statements. `transaction_timeout` is there from Postgres 17 on.
macro_rules! put_right {
    () => {
        "
set idle_session_timeout = 0;
select set_config(name, '0', false) from pg_settings where name = 'transaction_timeout';
set default_transaction_deferrable = off;
set datestyle = 'ISO, MDY';
set intervalstyle = 'postgres';
set timezone = 'UTC';
set bytea_output = 'hex';
set extra_float_digits = 1;
set standard_conforming_strings = on;
set array_nulls = on;
set transform_null_equals = off;
set row_security = on"
    };
}

pub(super) use put_right;
