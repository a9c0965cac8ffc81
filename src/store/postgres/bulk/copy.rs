//! Rows as COPY takes them: in its binary form, which the server reads without parsing numbers, times and escapes.

use bytes::{BufMut as _, Bytes, BytesMut};
use tokio_postgres::types::{IsNull, ToSql, Type};
use uuid::Uuid;

use crate::domain::Time;
use crate::store::postgres::rows::At;

/// The beginning of every COPY in binary form: the signature, no flags, no extension.
const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

/// The end of the rows, in place of a row's number of columns.
const TRAILER: i16 = -1;

/// A null, in place of a value's length.
const NULL: i32 = -1;

/// The version in front of the text of a `jsonb`.
const JSONB_VERSION: u8 = 1;

/// The bytes that are handed to the driver at once.
const CHUNK_BYTES: usize = 128 * 1024;

/// Rows of one table. The columns of a row are put one after the other, each by its type.
pub(super) struct Copy {
    buffer: BytesMut,
}

impl Copy {
    pub(super) fn with_capacity(bytes: usize) -> Self {
        let mut buffer = BytesMut::with_capacity(bytes);
        buffer.put_slice(HEADER);
        Self { buffer }
    }

    pub(super) fn row(&mut self, columns: i16) -> &mut Self {
        self.buffer.put_i16(columns);
        self
    }

    pub(super) fn smallint(&mut self, value: i16) -> &mut Self {
        self.buffer.put_i32(2);
        self.buffer.put_i16(value);
        self
    }

    pub(super) fn bigint(&mut self, value: i64) -> &mut Self {
        self.buffer.put_i32(8);
        self.buffer.put_i64(value);
        self
    }

    pub(super) fn bigint_or_null(&mut self, value: Option<i64>) -> &mut Self {
        match value {
            Some(value) => self.bigint(value),
            None => self.null(),
        }
    }

    pub(super) fn timestamptz(&mut self, at: Time) -> &mut Self {
        self.buffer.put_i32(8);
        let put = At(at).to_sql(&Type::TIMESTAMPTZ, &mut self.buffer);
        assert!(matches!(put, Ok(IsNull::No)), "a time has an encoding of eight bytes");
        self
    }

    pub(super) fn uuid(&mut self, value: Uuid) -> &mut Self {
        self.bytes(value.as_bytes())
    }

    pub(super) fn text(&mut self, value: &str) -> &mut Self {
        self.bytes(value.as_bytes())
    }

    pub(super) fn text_or_null(&mut self, value: Option<&str>) -> &mut Self {
        self.bytes_or_null(value.map(str::as_bytes))
    }

    pub(super) fn bytes_or_null(&mut self, value: Option<&[u8]>) -> &mut Self {
        match value {
            Some(value) => self.bytes(value),
            None => self.null(),
        }
    }

    pub(super) fn jsonb(&mut self, json: &str) -> &mut Self {
        self.length(json.len() + 1);
        self.buffer.put_u8(JSONB_VERSION);
        self.buffer.put_slice(json.as_bytes());
        self
    }

    pub(super) fn jsonb_or_null(&mut self, json: Option<&str>) -> &mut Self {
        match json {
            Some(json) => self.jsonb(json),
            None => self.null(),
        }
    }

    /// All rows, in pieces.
    pub(super) fn finish(mut self) -> impl Iterator<Item = Bytes> {
        self.buffer.put_i16(TRAILER);
        let mut rest = self.buffer.freeze();
        std::iter::from_fn(move || {
            let chunk = rest.split_to(rest.len().min(CHUNK_BYTES));
            (!chunk.is_empty()).then_some(chunk)
        })
    }

    fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.length(value.len());
        self.buffer.put_slice(value);
        self
    }

    fn null(&mut self) -> &mut Self {
        self.buffer.put_i32(NULL);
        self
    }

    fn length(&mut self, bytes: usize) {
        self.buffer.put_i32(i32::try_from(bytes).expect("no column of the ledger is near 2 GiB"));
    }
}
