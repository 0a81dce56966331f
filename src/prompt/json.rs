//! A pull scanner over JSON bytes that never copies and never recurses.
//!
//! A [`Value`] is the exact span of one value. Its members or elements are found by looking at
//! it again, and only as deep as the envelope of an API goes; what lies deeper is skipped by
//! counting brackets, so that no depth can exhaust the stack. It accepts every JSON text and
//! some that is not (mismatched brackets inside a skipped value, unknown literals): whether a body is valid is for
//! the engine to say.

use super::near;
use super::text::Text;

/// The span of one JSON value: not empty, no white space around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Value<'a>(&'a [u8]);

/// What the first byte of a value says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Object,
    Array,
    Text,
    /// A number, `true`, `false`, `null`, or any other bare word.
    Scalar,
}

/// The text is no JSON at this place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Broken;

impl<'a> Value<'a> {
    pub(super) fn kind(self) -> Kind {
        match self.0.first() {
            Some(b'{') => Kind::Object,
            Some(b'[') => Kind::Array,
            Some(b'"') => Kind::Text,
            _ => Kind::Scalar,
        }
    }

    /// The span as written.
    pub(super) fn raw(self) -> &'a [u8] {
        self.0
    }

    pub(super) fn is_null(self) -> bool {
        self.0 == b"null"
    }

    pub(super) fn is_true(self) -> bool {
        self.0 == b"true"
    }

    /// The string, if it is one.
    pub(super) fn text(self) -> Option<Text<'a>> {
        let inner = self.0.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
        Some(Text::new(inner))
    }

    /// Members of an object in the order written; none of any other value.
    pub(super) fn members(self) -> Members<'a> {
        Members(Items::new(self, Kind::Object))
    }

    /// Elements of an array; none of any other value. Stops where the text is broken.
    pub(super) fn elements(self) -> Elements<'a> {
        Elements(Items::new(self, Kind::Array))
    }
}

/// What members and elements have in common: a place, and whether a comma is due.
#[derive(Clone, Debug)]
struct Items<'a> {
    scanner: Scanner<'a>,
    started: bool,
    ended: bool,
}

impl<'a> Items<'a> {
    fn new(value: Value<'a>, wanted: Kind) -> Self {
        let ended = value.kind() != wanted;
        let mut scanner = Scanner::new(value.0);
        scanner.at = 1;
        Self { scanner, started: false, ended }
    }

    /// Moves to the start of the next item; `None` after the last.
    fn step(&mut self, close: u8) -> Option<Result<(), Broken>> {
        if self.ended {
            return None;
        }
        self.scanner.space();
        match self.scanner.peek() {
            Some(byte) if byte == close => {
                self.ended = true;
                return None;
            }
            Some(b',') if self.started => self.scanner.at += 1,
            Some(_) if !self.started => {}
            Some(_) | None => return self.broken(),
        }
        self.started = true;
        self.scanner.space();
        // A comma promises an item.
        if self.scanner.peek() == Some(close) { self.broken() } else { Some(Ok(())) }
    }

    fn broken<T>(&mut self) -> Option<Result<T, Broken>> {
        self.ended = true;
        Some(Err(Broken))
    }
}

/// See [`Value::members`].
#[derive(Clone, Debug)]
pub(super) struct Members<'a>(Items<'a>);

impl<'a> Members<'a> {
    /// Of the object at this place, whose end nobody knows yet; none of any other value.
    fn at(mut scanner: Scanner<'a>) -> Self {
        let ended = scanner.peek() != Some(b'{');
        scanner.pass();
        Self(Items { scanner, started: false, ended })
    }

    /// Tells each member of a body that is an object. A byte order mark and white space around are
    /// tolerated, anything else besides the object is not.
    pub(super) fn of_body(
        body: &'a [u8],
        mut each: impl FnMut(Text<'a>, Value<'a>),
    ) -> Result<(), Broken> {
        let mut scanner = Scanner::new(body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body));
        scanner.space();
        let mut behind = Self::at(scanner).each(&mut each)?;
        behind.space();
        if behind.peek().is_some() { Err(Broken) } else { Ok(()) }
    }

    /// Tells all members; returns the place behind the object.
    fn each(mut self, each: &mut impl FnMut(Text<'a>, Value<'a>)) -> Result<Scanner<'a>, Broken> {
        if self.0.ended {
            return Err(Broken);
        }
        for member in &mut self {
            let (key, value) = member?;
            each(key, value);
        }
        let mut behind = self.0.scanner;
        behind.pass();
        Ok(behind)
    }

    fn member(&mut self) -> Result<(Text<'a>, Value<'a>), Broken> {
        let scanner = &mut self.0.scanner;
        let key = scanner.value()?.text().ok_or(Broken)?;
        scanner.space();
        if scanner.peek() != Some(b':') {
            return Err(Broken);
        }
        scanner.at += 1;
        Ok((key, scanner.value()?))
    }
}

impl<'a> Iterator for Members<'a> {
    type Item = Result<(Text<'a>, Value<'a>), Broken>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.0.step(b'}')? {
            Ok(()) => {}
            Err(broken) => return Some(Err(broken)),
        }
        let member = self.member();
        self.0.ended = member.is_err();
        Some(member)
    }
}

/// See [`Value::elements`].
#[derive(Clone, Debug)]
pub(super) struct Elements<'a>(Items<'a>);

impl<'a> Elements<'a> {
    /// Every element with what `take` gathers of its members, as far as they can be read, in one look
    /// at it.
    pub(super) fn with<T: Default>(
        mut self,
        take: impl Fn(&mut T, Text<'a>, Value<'a>),
    ) -> impl Iterator<Item = (Value<'a>, T)> {
        std::iter::from_fn(move || {
            let mut taken = T::default();
            let element = self.next_and(|key, member| take(&mut taken, key, member))?;
            Some((element, taken))
        })
    }

    fn next_and(&mut self, mut each: impl FnMut(Text<'a>, Value<'a>)) -> Option<Value<'a>> {
        self.0.step(b']')?.ok()?;
        let scanner = &mut self.0.scanner;
        let start = scanner.at;
        match Members::at(scanner.clone()).each(&mut each) {
            Ok(behind) => {
                *scanner = behind;
                Some(Value(&scanner.bytes[start..scanner.at]))
            }
            Err(Broken) => self.value(),
        }
    }

    fn value(&mut self) -> Option<Value<'a>> {
        let element = self.0.scanner.value().ok();
        self.0.ended = element.is_none();
        element
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.step(b']')?.ok()?;
        self.value()
    }
}

/// A place in a text.
#[derive(Clone, Debug)]
pub(super) struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// Passes over one byte, or none at the end.
    pub(super) fn pass(&mut self) {
        self.at = self.bytes.len().min(self.at + 1);
    }

    /// Passes over white space.
    pub(super) fn space(&mut self) {
        let rest = &self.bytes[self.at..];
        let blank = rest.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
        self.advance(blank.unwrap_or(rest.len()));
    }

    /// Passes over white space and one value, which it returns.
    pub(super) fn value(&mut self) -> Result<Value<'a>, Broken> {
        self.space();
        let start = self.at;
        match self.peek() {
            Some(b'"') => self.string()?,
            Some(b'{' | b'[') => self.nested()?,
            Some(_) => self.scalar()?,
            None => return Err(Broken),
        }
        Ok(Value(&self.bytes[start..self.at]))
    }

    fn advance(&mut self, by: usize) {
        #[cfg(test)]
        steps::count(by + 1);
        self.at += by;
    }

    fn string(&mut self) -> Result<(), Broken> {
        self.advance(1);
        loop {
            let rest = &self.bytes[self.at..];
            let quote = near::find(b'"', rest).ok_or(Broken)?;
            let slashes = rest[..quote].iter().rev().take_while(|byte| **byte == b'\\').count();
            self.advance(quote + 1);
            // An even number of backslashes in front escape each other, not the quote. None of
            // them can belong to what was passed before: that ended with a quote.
            if slashes.is_multiple_of(2) {
                return Ok(());
            }
        }
    }

    fn scalar(&mut self) -> Result<(), Broken> {
        let rest = &self.bytes[self.at..];
        let word = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
        let length = rest.iter().position(|byte| !word(byte)).unwrap_or(rest.len());
        self.advance(length);
        if length == 0 { Err(Broken) } else { Ok(()) }
    }

    /// Objects and arrays, by counting brackets.
    fn nested(&mut self) -> Result<(), Broken> {
        let mut depth = 0_usize;
        loop {
            self.dull();
            match self.peek().ok_or(Broken)? {
                b'"' => self.string()?,
                b'{' | b'[' => {
                    depth += 1;
                    self.advance(1);
                }
                b'}' | b']' => {
                    self.advance(1);
                    depth -= 1;
                    if depth == 0 {
                        return Ok(());
                    }
                }
                _ => self.advance(1),
            }
        }
    }

    /// Passes over bytes that are neither quotes nor brackets, many at a time: arrays of token
    /// ids are made of them.
    fn dull(&mut self) {
        // `[` and `{` differ in this bit alone, and so do `]` and `}`.
        let telling = |byte: u8| byte == b'"' || byte | 0x20 == b'{' || byte | 0x20 == b'}';
        let rest = &self.bytes[self.at..];
        let whole = rest
            .chunks_exact(32)
            .take_while(|chunk| !chunk.iter().fold(false, |found, byte| found | telling(*byte)))
            .count();
        let rest = &rest[32 * whole..];
        let tail = rest.iter().position(|byte| telling(*byte)).unwrap_or(rest.len());
        self.advance(32 * whole + tail);
    }
}

/// Counts the bytes looked at, so that tests can bound work without a clock.
#[cfg(test)]
pub(super) mod steps {
    use std::cell::Cell;

    thread_local!(static STEPS: Cell<u64> = const { Cell::new(0) });

    pub(in super::super) fn count(by: usize) {
        STEPS.with(|steps| steps.set(steps.get() + by as u64));
    }

    /// Steps since the last call.
    pub(in super::super) fn take() -> u64 {
        STEPS.with(Cell::take)
    }
}
