//! A view's columns and what stands in them, as text or in PostgreSQL's binary formats.

use std::borrow::Cow;

use wire::tag::server as tag;
use wire::write;

/// A column of a view.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Column {
    pub name: &'static str,
    pub kind: Kind,
}

/// A type of PostgreSQL's.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    Text,
    Int4,
    Int8,
    Numeric,
    Bytea,
}

impl Kind {
    fn oid(self) -> u32 {
        match self {
            Self::Bytea => 17,
            Self::Int8 => 20,
            Self::Int4 => 23,
            Self::Text => 25,
            Self::Numeric => 1700,
        }
    }

    /// Bytes of a value; negative where it varies.
    fn size(self) -> i16 {
        match self {
            Self::Int4 => 4,
            Self::Int8 => 8,
            Self::Text | Self::Numeric | Self::Bytea => -1,
        }
    }

    /// The name that documentation calls it by.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Int4 => "int4",
            Self::Int8 => "int8",
            Self::Numeric => "numeric",
            Self::Bytea => "bytea",
        }
    }
}

pub(crate) const fn text(name: &'static str) -> Column {
    Column { name, kind: Kind::Text }
}

pub(crate) const fn int4(name: &'static str) -> Column {
    Column { name, kind: Kind::Int4 }
}

pub(crate) const fn int8(name: &'static str) -> Column {
    Column { name, kind: Kind::Int8 }
}

pub(crate) const fn numeric(name: &'static str) -> Column {
    Column { name, kind: Kind::Numeric }
}

pub(crate) const fn bytea(name: &'static str) -> Column {
    Column { name, kind: Kind::Bytea }
}

/// One value of a row. A number that its column cannot hold is shown as the nearest that it can.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Cell<'a> {
    Null,
    Text(Cow<'a, str>),
    Number(i128),
}

impl<'a> From<&'a str> for Cell<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl<'a> From<&'a String> for Cell<'a> {
    fn from(text: &'a String) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl From<String> for Cell<'_> {
    fn from(text: String) -> Self {
        Self::Text(Cow::Owned(text))
    }
}

impl From<bool> for Cell<'_> {
    fn from(yes: bool) -> Self {
        Self::Number(yes.into())
    }
}

impl From<usize> for Cell<'_> {
    fn from(number: usize) -> Self {
        Self::Number(i128::try_from(number).unwrap_or(i128::MAX))
    }
}

macro_rules! cell_from_number {
    ($($number:ty),*) => { $(
        impl From<$number> for Cell<'_> {
            fn from(number: $number) -> Self {
                Self::Number(number.into())
            }
        }
    )* };
}

cell_from_number!(u16, u32, i32, u64);

impl<'a, T: Into<Self>> From<Option<T>> for Cell<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Cell::Null, Into::into)
    }
}

/// How values are written.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Format {
    #[default]
    Text,
    Binary,
}

/// Which column is wanted in which format: as in a Bind message, none means text for all, one means
/// the same for all.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Formats(pub(crate) Vec<Format>);

impl Formats {
    fn of(&self, column: usize) -> Format {
        match self.0.as_slice() {
            [] => Format::Text,
            [all] => *all,
            each => each.get(column).copied().unwrap_or_default(),
        }
    }
}

/// `RowDescription`. The columns belong to no table.
pub(crate) fn row_description(out: &mut Vec<u8>, columns: &[Column], formats: &Formats) {
    write::message(out, tag::ROW_DESCRIPTION, |out| {
        put_count(out, columns.len());
        for (at, column) in columns.iter().enumerate() {
            out.extend_from_slice(column.name.as_bytes());
            out.push(0);
            // Table and column number: none.
            out.extend_from_slice(&[0; 6]);
            out.extend_from_slice(&column.kind.oid().to_be_bytes());
            out.extend_from_slice(&column.kind.size().to_be_bytes());
            // Type modifier: none.
            out.extend_from_slice(&(-1i32).to_be_bytes());
            let format: i16 = match formats.of(at) {
                Format::Text => 0,
                Format::Binary => 1,
            };
            out.extend_from_slice(&format.to_be_bytes());
        }
    });
}

/// Where the rows of a view go: straight into messages.
pub(crate) struct Rows<'o> {
    pub(crate) columns: &'static [Column],
    pub(crate) formats: &'o Formats,
    pub(crate) out: &'o mut Vec<u8>,
}

impl Rows<'_> {
    /// One `DataRow`, with a cell for each column.
    pub(crate) fn push(&mut self, cells: &[Cell<'_>]) {
        debug_assert_eq!(cells.len(), self.columns.len(), "a cell for each column");
        write::message(self.out, tag::DATA_ROW, |out| {
            put_count(out, self.columns.len());
            for (at, column) in self.columns.iter().enumerate() {
                match cells.get(at) {
                    None | Some(Cell::Null) => out.extend_from_slice(&(-1i32).to_be_bytes()),
                    Some(cell) => {
                        sized(out, |out| put(out, cell, column.kind, self.formats.of(at)))
                    }
                }
            }
        });
    }
}

fn put(out: &mut Vec<u8>, cell: &Cell<'_>, kind: Kind, format: Format) {
    let number = match cell {
        Cell::Null => return,
        Cell::Text(text) => {
            debug_assert!(
                matches!(kind, Kind::Text | Kind::Bytea),
                "a text in a column of numbers"
            );
            return out.extend_from_slice(text.as_bytes());
        }
        Cell::Number(number) => *number,
    };
    let int4 = || number.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
    let int8 = || number.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
    match (kind, format) {
        (Kind::Int4, Format::Binary) => out.extend_from_slice(&int4().to_be_bytes()),
        (Kind::Int8, Format::Binary) => out.extend_from_slice(&int8().to_be_bytes()),
        (Kind::Numeric, Format::Binary) => put_numeric(out, number),
        (Kind::Int4, Format::Text) => out.extend_from_slice(int4().to_string().as_bytes()),
        (Kind::Int8, Format::Text) => out.extend_from_slice(int8().to_string().as_bytes()),
        (Kind::Numeric, Format::Text) | (Kind::Text | Kind::Bytea, _) => {
            out.extend_from_slice(number.to_string().as_bytes());
        }
    }
}

/// A whole number as `numeric`: digits to the base of 10,000, the first one's power, the sign, and
/// no digits behind the point.
fn put_numeric(out: &mut Vec<u8>, number: i128) {
    let mut digits = Vec::new();
    let mut rest = number.unsigned_abs();
    while rest > 0 {
        digits.push((rest % NUMERIC_BASE) as u16);
        rest /= NUMERIC_BASE;
    }
    digits.reverse();
    let weight = digits.len().saturating_sub(1);
    while digits.last() == Some(&0) {
        digits.pop();
    }
    let sign = if number < 0 { NUMERIC_NEGATIVE } else { 0 };
    put_count(out, digits.len());
    put_count(out, weight);
    out.extend_from_slice(&sign.to_be_bytes());
    out.extend_from_slice(&[0; 2]);
    for digit in digits {
        out.extend_from_slice(&digit.to_be_bytes());
    }
}

const NUMERIC_BASE: u128 = 10_000;
const NUMERIC_NEGATIVE: u16 = 0x4000;

fn put_count(out: &mut Vec<u8>, count: usize) {
    out.extend_from_slice(&u16::try_from(count).unwrap_or(u16::MAX).to_be_bytes());
}

/// What `fill` appends, after its length.
fn sized(out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    fill(out);
    let len = i32::try_from(out.len() - start - 4).unwrap_or(i32::MAX);
    if let Some(place) = out.get_mut(start..start + 4) {
        place.copy_from_slice(&len.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(cell: impl Into<Cell<'static>>, kind: Kind, format: Format) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out, &cell.into(), kind, format);
        out
    }

    /// As PostgreSQL's `numeric_send` writes them.
    #[test]
    fn numeric_in_binary() {
        for (number, bytes) in [
            (0, &[0u16, 0, 0, 0][..]),
            (1, &[1, 0, 0, 0, 1]),
            (9_999, &[1, 0, 0, 0, 9_999]),
            (10_000, &[1, 1, 0, 0, 1]),
            (12_345_678, &[2, 1, 0, 0, 1_234, 5_678]),
            (10_000_000_001, &[3, 2, 0, 0, 100, 0, 1]),
            (u64::MAX.into(), &[5, 4, 0, 0, 1844, 6744, 737, 955, 1615]),
            (-20_001, &[2, 1, 0x4000, 0, 2, 1]),
        ] {
            let mut out = Vec::new();
            put_numeric(&mut out, number);
            let wanted: Vec<u8> = bytes.iter().flat_map(|word| word.to_be_bytes()).collect();
            assert_eq!(out, wanted, "{number}");
        }
    }

    #[test]
    fn integers_in_both_formats() {
        assert_eq!(written(7u32, Kind::Int4, Format::Text), b"7");
        assert_eq!(written(7u32, Kind::Int4, Format::Binary), [0, 0, 0, 7]);
        assert_eq!(written(-1i32, Kind::Int8, Format::Binary), [0xff; 8]);
        assert_eq!(written(u64::MAX, Kind::Numeric, Format::Text), b"18446744073709551615");
    }

    /// A wrapped number would be a wrong fact, and a driver may refuse one too long.
    #[test]
    fn a_number_too_big_for_its_column_is_cut_down() {
        assert_eq!(written(u64::MAX, Kind::Int4, Format::Text), b"2147483647");
        assert_eq!(written(u64::MAX, Kind::Int8, Format::Text), b"9223372036854775807");
        assert_eq!(written(u64::MAX, Kind::Int4, Format::Binary), i32::MAX.to_be_bytes());
    }

    #[test]
    fn a_row_holds_lengths_and_nulls() {
        let mut out = Vec::new();
        const COLUMNS: &[Column] = &[text("t"), int4("i"), text("n")];
        let formats = Formats(vec![Format::Text, Format::Binary, Format::Text]);
        let mut rows = Rows { columns: COLUMNS, formats: &formats, out: &mut out };
        rows.push(&["ab".into(), 1u32.into(), Cell::Null]);
        assert_eq!(out, b"D\0\0\0\x18\0\x03\0\0\0\x02ab\0\0\0\x04\0\0\0\x01\xff\xff\xff\xff");
    }

    #[test]
    fn formats_may_be_none_one_or_each() {
        let formats = |list: &[Format]| Formats(list.to_vec());
        assert_eq!(formats(&[]).of(3), Format::Text);
        assert_eq!(formats(&[Format::Binary]).of(3), Format::Binary);
        assert_eq!(formats(&[Format::Text, Format::Binary]).of(1), Format::Binary);
    }
}
