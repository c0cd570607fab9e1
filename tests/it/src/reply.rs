//! What came back: whole messages, and what they say.

use std::fmt;

/// One message of a server.
#[derive(Clone, Eq, PartialEq)]
pub struct Message {
    pub tag: u8,
    pub body: Vec<u8>,
}

impl Message {
    /// The fields of an ErrorResponse or NoticeResponse.
    #[must_use]
    pub fn fields(&self) -> Fields {
        let mut fields = Vec::new();
        let mut rest = self.body.as_slice();
        while let Some((&code, tail)) = rest.split_first() {
            if code == 0 {
                break;
            }
            let end = tail.iter().position(|&byte| byte == 0).unwrap_or(tail.len());
            fields.push((code, String::from_utf8_lossy(&tail[..end]).into_owned()));
            rest = tail.get(end + 1..).unwrap_or_default();
        }
        Fields(fields)
    }

    /// The cells of a DataRow.
    #[must_use]
    pub fn cells(&self) -> Vec<Option<String>> {
        let mut body = Cursor(&self.body);
        let count = body.int16();
        (0..count)
            .map(|_| {
                let length = body.int32();
                let length = usize::try_from(length).ok()?;
                Some(String::from_utf8_lossy(body.take(length)).into_owned())
            })
            .collect()
    }

    /// The columns of a RowDescription: name and type.
    #[must_use]
    pub fn columns(&self) -> Vec<(String, i32)> {
        let mut body = Cursor(&self.body);
        let count = body.int16();
        (0..count)
            .map(|_| {
                let name = body.text();
                body.take(6);
                let kind = body.int32();
                body.take(8);
                (name, kind)
            })
            .collect()
    }

    /// A ParameterStatus.
    #[must_use]
    pub fn parameter(&self) -> (String, String) {
        let mut body = Cursor(&self.body);
        (body.text(), body.text())
    }

    /// The text up to the first zero byte: a command tag.
    #[must_use]
    pub fn text(&self) -> String {
        Cursor(&self.body).text()
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.body[..self.body.len().min(300)];
        write!(f, "{} {:?}", char::from(self.tag), String::from_utf8_lossy(shown))
    }
}

/// Reads a body of a server we trust enough to panic on.
pub struct Cursor<'a>(pub &'a [u8]);

impl<'a> Cursor<'a> {
    pub fn take(&mut self, length: usize) -> &'a [u8] {
        let (head, tail) = self.0.split_at(length);
        self.0 = tail;
        head
    }

    pub fn int16(&mut self) -> i16 {
        i16::from_be_bytes(self.take(2).try_into().expect("two bytes"))
    }

    pub fn int32(&mut self) -> i32 {
        i32::from_be_bytes(self.take(4).try_into().expect("four bytes"))
    }

    pub fn text(&mut self) -> String {
        let end = self.0.iter().position(|&byte| byte == 0).expect("a zero byte ends a text");
        let text = String::from_utf8_lossy(self.take(end)).into_owned();
        self.take(1);
        text
    }
}

/// The fields of an error or notice.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Fields(pub Vec<(u8, String)>);

impl Fields {
    #[must_use]
    pub fn field(&self, code: u8) -> &str {
        self.0.iter().find(|(field, _)| *field == code).map_or("", |(_, text)| text)
    }

    #[must_use]
    pub fn severity(&self) -> &str {
        self.field(b'S')
    }

    #[must_use]
    pub fn code(&self) -> &str {
        self.field(b'C')
    }

    #[must_use]
    pub fn text(&self) -> &str {
        self.field(b'M')
    }
}

/// The messages that answered something.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Reply(pub Vec<Message>);

impl Reply {
    /// The tags in order: `TDCZ` for a SELECT of one row.
    #[must_use]
    pub fn tags(&self) -> String {
        self.0.iter().map(|message| char::from(message.tag)).collect()
    }

    #[must_use]
    pub fn count(&self, tag: u8) -> usize {
        self.of(tag).count()
    }

    pub fn of(&self, tag: u8) -> impl Iterator<Item = &Message> {
        self.0.iter().filter(move |message| message.tag == tag)
    }

    #[must_use]
    pub fn rows(&self) -> Vec<Vec<Option<String>>> {
        self.of(b'D').map(Message::cells).collect()
    }

    /// The first column of every row; NULL is empty.
    #[must_use]
    pub fn column(&self) -> Vec<String> {
        self.rows()
            .into_iter()
            .map(|row| row.into_iter().next().flatten().unwrap_or_default())
            .collect()
    }

    /// The first cell.
    ///
    /// # Panics
    /// When there is none, with what came instead.
    #[must_use]
    pub fn value(&self) -> String {
        self.column().into_iter().next().unwrap_or_else(|| panic!("no row in {self:?}"))
    }

    /// The rows with their column names, for views of which only some columns matter.
    #[must_use]
    pub fn table(&self) -> Vec<Vec<(String, String)>> {
        let names = self.names();
        self.rows()
            .into_iter()
            .map(|row| {
                names.iter().cloned().zip(row.into_iter().map(Option::unwrap_or_default)).collect()
            })
            .collect()
    }

    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let columns = self.of(b'T').next().map(Message::columns).unwrap_or_default();
        columns.into_iter().map(|(name, _)| name).collect()
    }

    #[must_use]
    pub fn error(&self) -> Option<Fields> {
        self.of(b'E').next().map(Message::fields)
    }

    /// The SQLSTATE of the first error, or "".
    #[must_use]
    pub fn code(&self) -> String {
        self.error().map(|error| error.code().to_owned()).unwrap_or_default()
    }

    /// The tag of the last CommandComplete, or "".
    #[must_use]
    pub fn command(&self) -> String {
        self.of(b'C').last().map(Message::text).unwrap_or_default()
    }

    /// The transaction status of the last ReadyForQuery.
    #[must_use]
    pub fn status(&self) -> Option<char> {
        self.of(b'Z')
            .last()
            .and_then(|message| message.body.first())
            .map(|&status| char::from(status))
    }
}
