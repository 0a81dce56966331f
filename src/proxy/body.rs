//! The only owner of reading a request's body before a worker is chosen, and of replaying it.
//!
//! Pingora replays only what its own retry buffer holds, at most [`REPLAY_LIMIT`] bytes, and sends
//! nothing at all when a body was read to its end without that buffer. So the buffer is armed late:
//! with a length, when the rest fits into it. Pingora then calls the body filter once per attempt
//! with that rest, and the whole body takes its place. Without a length it is armed from the start;
//! an HTTP/1.1 body that outgrows it is left *before* its end, where its JSON value closes, and
//! Pingora reads on from there. HTTP/2 has no such place to stop, hence 411.
//!
//! Behind an HTTP/2 body with trailers Pingora asks once more, with nothing, as it sees the end only
//! then: the body has gone by that time.

use super::reply::Refusal;
use crate::limited::PERMIT_BYTES;
use bytes::{Bytes, BytesMut};
use pingora::{Error, ErrorType};
use pingora_proxy::Session;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Pingora's own constant for its retry buffer, bytes.
pub(super) const REPLAY_LIMIT: usize = 65_536;

/// First allocation for a body of declared length; more only as bytes really arrive.
const FIRST_ALLOCATION: u64 = 1 << 20;

/// What bounds bodies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds<'a> {
    pub(super) max_body_bytes: u64,
    pub(super) idle: Duration,
    pub(super) room: &'a Arc<Semaphore>,
}

/// A request's body as far as it was read.
#[derive(Debug, Default)]
pub(super) enum RequestBody {
    /// There is none, or it is no longer needed.
    #[default]
    Empty,
    /// All of it.
    Whole {
        /// What was read.
        held: Held,
        /// Was it handed to the worker of this attempt?
        forwarded: bool,
    },
    /// Its beginning; Pingora reads the rest from the client while it forwards.
    Opening {
        /// What was read.
        held: Held,
        /// Was it handed to the worker?
        forwarded: bool,
        /// Bytes that may still come of the rest.
        left: u64,
        /// The bound of the whole.
        max_body_bytes: u64,
    },
}

/// Bytes that count against the bound of all buffered bodies.
#[derive(Debug, Default)]
pub(super) struct Held {
    bytes: Bytes,
    _room: Room,
}

/// A body's part of the room for all of them.
#[derive(Debug, Default)]
struct Room(Option<OwnedSemaphorePermit>);

/// Why no body came of it.
#[derive(Debug)]
pub(super) enum BodyError {
    /// The edge answers.
    Refused(Refusal),
    /// The client is gone or broke the framing.
    Client(Box<Error>),
}

impl RequestBody {
    /// What was read of it.
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Empty => &[],
            Self::Whole { held, .. } | Self::Opening { held, .. } => &held.bytes,
        }
    }

    /// Is there all of one?
    pub(super) fn is_at_hand(&self) -> bool {
        matches!(self, Self::Whole { held, .. } if !held.bytes.is_empty())
    }

    /// Can it be sent again from its first byte?
    pub(super) fn is_replayable(&self) -> bool {
        match self {
            Self::Empty | Self::Whole { .. } => true,
            Self::Opening { forwarded, .. } => !forwarded,
        }
    }

    /// Another attempt begins: it has to be sent from its first byte.
    pub(super) fn rewind(&mut self) {
        match self {
            Self::Empty | Self::Opening { .. } => {}
            Self::Whole { forwarded, .. } => *forwarded = false,
        }
    }

    /// What goes to the worker in place of `piece`, which Pingora is about to send.
    ///
    /// # Errors
    /// A body without a length turns out to be too large.
    pub(super) fn forward(&mut self, piece: &mut Option<Bytes>) -> Result<(), Refusal> {
        match self {
            Self::Empty => {}
            Self::Whole { held, forwarded } => {
                *piece = (!std::mem::replace(forwarded, true)).then(|| held.bytes.clone());
            }
            Self::Opening { held, forwarded, left, max_body_bytes } => {
                let rest = piece.as_ref().map_or(0, |rest| rest.len() as u64);
                *left = left.checked_sub(rest).ok_or(Refusal::BodyTooLarge(*max_body_bytes))?;
                if std::mem::replace(forwarded, true) {
                    return Ok(());
                }
                *piece = Some(match piece.take() {
                    Some(rest) if !rest.is_empty() => [&held.bytes[..], &rest[..]].concat().into(),
                    _ => held.bytes.clone(),
                });
            }
        }
        Ok(())
    }

    /// The worker's answer begins, so nothing is sent again: what it need not have any more is
    /// let go.
    pub(super) fn release(&mut self) {
        match self {
            Self::Empty => {}
            Self::Whole { .. } => *self = Self::Empty,
            Self::Opening { forwarded: false, .. } => {}
            Self::Opening { held, .. } => *held = Held::default(),
        }
    }
}

impl Room {
    /// Covers the first `bytes` of a body. Waits for that as long as the client may take for
    /// bytes of its own. Only what has come counts: what a client merely announces must not keep
    /// others out.
    async fn cover(&mut self, bytes: u64, bounds: Bounds<'_>) -> Result<(), BodyError> {
        let covered = self.0.as_ref().map_or(0, OwnedSemaphorePermit::num_permits) as u64;
        let missing = bytes.div_ceil(PERMIT_BYTES).saturating_sub(covered);
        if missing == 0 {
            return Ok(());
        }
        let missing = u32::try_from(missing).unwrap_or(u32::MAX);
        let more = match Arc::clone(bounds.room).try_acquire_many_owned(missing) {
            Ok(more) => more,
            // No clock is needed where there is nothing to wait for.
            Err(_) => {
                let wait = Arc::clone(bounds.room).acquire_many_owned(missing);
                let Ok(Ok(more)) = tokio::time::timeout(bounds.idle, wait).await else {
                    return Err(BodyError::Refused(Refusal::NoRoomForBody));
                };
                more
            }
        };
        match &mut self.0 {
            Some(room) => room.merge(more),
            None => self.0 = Some(more),
        }
        Ok(())
    }
}

/// Reads the client's body, or as much of it as can be read before a worker is chosen.
pub(super) async fn read(
    session: &mut Session,
    bounds: Bounds<'_>,
) -> Result<RequestBody, BodyError> {
    if session.is_body_empty() {
        return Ok(RequestBody::Empty);
    }
    session.set_read_timeout(Some(bounds.idle));
    match content_length(session) {
        Some(length) if bounds.max_body_bytes < length => {
            Err(BodyError::Refused(Refusal::BodyTooLarge(bounds.max_body_bytes)))
        }
        Some(length) => read_sized(session, length, bounds).await,
        None => read_unsized(session, bounds).await,
    }
}

fn content_length(session: &Session) -> Option<u64> {
    session
        .req_header()
        .headers
        .get(http::header::CONTENT_LENGTH)?
        .to_str()
        .ok()?
        .trim_ascii()
        .parse()
        .ok()
}

async fn read_sized(
    session: &mut Session,
    length: u64,
    bounds: Bounds<'_>,
) -> Result<RequestBody, BodyError> {
    continue_if_expected(session).await?;
    let mut room = Room::default();
    let mut pieces = Pieces::new(length);
    let mut armed = false;
    loop {
        let left = length.saturating_sub(pieces.len() as u64);
        if !armed && left <= REPLAY_LIMIT as u64 {
            session.enable_retry_buffering();
            armed = true;
        }
        let Some(piece) = next(session).await? else { break };
        room.cover((pieces.len() + piece.len()) as u64, bounds).await?;
        pieces.push(piece);
    }
    Ok(whole(Held { bytes: pieces.into_bytes(), _room: room }))
}

async fn read_unsized(session: &mut Session, bounds: Bounds<'_>) -> Result<RequestBody, BodyError> {
    continue_if_expected(session).await?;
    session.enable_retry_buffering();
    let mut pieces = Pieces::new(REPLAY_LIMIT as u64);
    let mut room = Room::default();
    let mut value = JsonValue::default();
    loop {
        let outgrown = REPLAY_LIMIT < pieces.len();
        if outgrown && session.is_http2() {
            return Err(BodyError::Refused(Refusal::LengthRequired));
        }
        // A value that closed, or never opened, is all the decision can use.
        if outgrown && value.is_settled() {
            return Ok(opening(Held { bytes: pieces.into_bytes(), _room: room }, bounds));
        }
        let Some(piece) = next(session).await? else { break };
        let total = (pieces.len() + piece.len()) as u64;
        if bounds.max_body_bytes < total {
            return Err(BodyError::Refused(Refusal::BodyTooLarge(bounds.max_body_bytes)));
        }
        room.cover(total, bounds).await?;
        value.push(&piece);
        pieces.push(piece);
    }
    if REPLAY_LIMIT < pieces.len() {
        // Read to its end without a place to stop: stock Pingora would send nothing of it.
        return Err(BodyError::Refused(Refusal::BadRequest(
            "the chunked body ends inside its JSON value",
        )));
    }
    Ok(whole(Held { bytes: pieces.into_bytes(), _room: room }))
}

fn opening(held: Held, bounds: Bounds<'_>) -> RequestBody {
    let max_body_bytes = bounds.max_body_bytes;
    let left = max_body_bytes.saturating_sub(held.bytes.len() as u64);
    RequestBody::Opening { held, forwarded: false, left, max_body_bytes }
}

fn whole(held: Held) -> RequestBody {
    RequestBody::Whole { held, forwarded: false }
}

async fn continue_if_expected(session: &mut Session) -> Result<(), BodyError> {
    let request = session.req_header();
    let expected = request.headers.get_all(http::header::EXPECT).iter();
    let mut expected = expected.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    let is_waiting = expected.any(|one| one.trim_ascii().eq_ignore_ascii_case(b"100-continue"));
    if request.version < http::Version::HTTP_11 || !is_waiting {
        return Ok(());
    }
    session.write_continue_response().await.map_err(BodyError::Client)
}

async fn next(session: &mut Session) -> Result<Option<Bytes>, BodyError> {
    session.read_request_body().await.map_err(|error| match error.etype() {
        ErrorType::ReadTimedout => BodyError::Refused(Refusal::RequestTimeout),
        _ => BodyError::Client(error.into_down()),
    })
}

/// Collects pieces; a body that came in one piece is not copied.
enum Pieces {
    None { expected: u64 },
    One { piece: Bytes, expected: u64 },
    Many(BytesMut),
}

impl Pieces {
    fn new(expected: u64) -> Self {
        Self::None { expected }
    }

    fn len(&self) -> usize {
        match self {
            Self::None { .. } => 0,
            Self::One { piece, .. } => piece.len(),
            Self::Many(bytes) => bytes.len(),
        }
    }

    fn push(&mut self, piece: Bytes) {
        match self {
            Self::None { expected } => *self = Self::One { piece, expected: *expected },
            Self::One { piece: first, expected } => {
                let expected = usize::try_from((*expected).min(FIRST_ALLOCATION)).unwrap_or(0);
                let mut bytes = BytesMut::with_capacity(expected.max(first.len() + piece.len()));
                bytes.extend_from_slice(first);
                bytes.extend_from_slice(&piece);
                *self = Self::Many(bytes);
            }
            Self::Many(bytes) => bytes.extend_from_slice(&piece),
        }
    }

    fn into_bytes(self) -> Bytes {
        match self {
            Self::None { .. } => Bytes::new(),
            Self::One { piece, .. } => piece,
            Self::Many(bytes) => bytes.freeze(),
        }
    }
}

/// Finds where the JSON object that opens a body closes, across any cut, looking at each byte once.
#[derive(Debug, Default)]
struct JsonValue {
    state: JsonState,
    depth: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum JsonState {
    #[default]
    Before,
    Inside,
    InString,
    Escaped,
    Closed,
    NotAnObject,
}

impl JsonValue {
    fn is_settled(&self) -> bool {
        match self.state {
            JsonState::Closed | JsonState::NotAnObject => true,
            JsonState::Before | JsonState::Inside | JsonState::InString | JsonState::Escaped => {
                false
            }
        }
    }

    fn push(&mut self, piece: &[u8]) {
        for &byte in piece {
            self.state = match (self.state, byte) {
                (JsonState::Closed | JsonState::NotAnObject, _) => return,
                // White space, and the bytes of a byte order mark.
                (JsonState::Before, b' ' | b'\t' | b'\r' | b'\n' | 0xef | 0xbb | 0xbf) => {
                    JsonState::Before
                }
                (JsonState::Before, b'{') => self.opened(),
                (JsonState::Before, _) => JsonState::NotAnObject,
                (JsonState::Inside, b'"') => JsonState::InString,
                (JsonState::Inside, b'{' | b'[') => self.opened(),
                (JsonState::Inside, b'}' | b']') => self.closed(),
                (JsonState::InString, b'\\') => JsonState::Escaped,
                (JsonState::InString, b'"') => JsonState::Inside,
                (JsonState::Escaped, _) => JsonState::InString,
                (state @ (JsonState::Inside | JsonState::InString), _) => state,
            };
        }
    }

    fn opened(&mut self) -> JsonState {
        self.depth += 1;
        JsonState::Inside
    }

    fn closed(&mut self) -> JsonState {
        self.depth -= 1;
        if self.depth == 0 { JsonState::Closed } else { JsonState::Inside }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(pieces: &[&str]) -> JsonState {
        let mut value = JsonValue::default();
        for piece in pieces {
            value.push(piece.as_bytes());
        }
        value.state
    }

    #[test]
    fn an_object_closes_at_its_own_brace_across_any_cut() {
        assert_eq!(
            settled(&[" {\"a\":\"}\\", "\"}\",\"b\":[{}", "]}", "tail}"]),
            JsonState::Closed
        );
        assert_eq!(settled(&["{\"a\":\"}"]), JsonState::InString);
        assert_eq!(settled(&["{\"a\":[1,2]"]), JsonState::Inside);
    }

    #[test]
    fn what_opens_otherwise_is_no_object() {
        assert_eq!(settled(&["--boundary"]), JsonState::NotAnObject);
        assert_eq!(settled(&["[1]"]), JsonState::NotAnObject);
    }

    #[test]
    fn a_body_in_one_piece_is_not_copied() {
        let piece = Bytes::from_static(b"abc");
        let mut pieces = Pieces::new(3);
        pieces.push(piece.clone());
        assert_eq!(pieces.into_bytes().as_ptr(), piece.as_ptr());
    }

    #[test]
    fn a_whole_body_goes_once_in_each_attempt() {
        let bytes = Bytes::from_static(b"{}");
        let mut body = whole(Held { bytes: bytes.clone(), _room: Room::default() });
        for _ in 0..2 {
            body.rewind();
            let mut piece = Some(Bytes::from_static(b"}"));
            assert_eq!(body.forward(&mut piece), Ok(()));
            assert_eq!(piece.as_ref(), Some(&bytes));
            let mut behind = None;
            assert_eq!(body.forward(&mut behind), Ok(()));
            assert_eq!(behind, None);
        }
    }

    #[test]
    fn an_opening_beyond_pingoras_buffer_is_put_before_the_rest_once() {
        let mut body = opened(8);
        assert!(body.is_replayable());
        let mut piece = Some(Bytes::from_static(b"rest"));
        assert_eq!(body.forward(&mut piece), Ok(()));
        assert_eq!(piece.as_ref().map(Bytes::len), Some(REPLAY_LIMIT + 5));
        let mut next = Some(Bytes::from_static(b"more"));
        assert_eq!(body.forward(&mut next), Ok(()));
        assert_eq!(next.as_deref(), Some(&b"more"[..]));
        assert!(!body.is_replayable());
    }

    #[test]
    fn an_opening_is_let_go_once_it_was_forwarded_and_stays_unreplayable() {
        let mut body = opened(8);
        body.release();
        assert_eq!(body.bytes().len(), REPLAY_LIMIT + 1, "the worker does not have it yet");
        assert_eq!(body.forward(&mut None), Ok(()));
        body.release();
        assert!(body.bytes().is_empty());
        assert!(!body.is_replayable());
    }

    #[test]
    fn the_rest_of_an_opening_is_bounded_too() {
        let mut body = opened(4);
        assert_eq!(body.forward(&mut Some(Bytes::from_static(b"rest"))), Ok(()));
        let more = body.forward(&mut Some(Bytes::from_static(b"s")));
        assert_eq!(more, Err(Refusal::BodyTooLarge(REPLAY_LIMIT as u64 + 5)));
    }

    /// An opening one byte over Pingora's limit, of a body with at most `left` more.
    fn opened(left: u64) -> RequestBody {
        let bytes = Bytes::from(vec![b'a'; REPLAY_LIMIT + 1]);
        let room = crate::limited::room(1);
        let max_body_bytes = bytes.len() as u64 + left;
        let bounds = Bounds { max_body_bytes, idle: Duration::ZERO, room: &room };
        opening(Held { bytes, _room: Room::default() }, bounds)
    }

    #[tokio::test]
    async fn a_body_takes_room_for_what_has_come_of_it() {
        let all = crate::limited::room(4 * PERMIT_BYTES);
        let bounds = Bounds { max_body_bytes: u64::MAX, idle: Duration::ZERO, room: &all };
        let mut part = Room::default();
        for bytes in 1..=PERMIT_BYTES + 1 {
            assert!(part.cover(bytes, bounds).await.is_ok());
        }
        assert_eq!(all.available_permits(), 2);
        let mut other = Room::default();
        let refused = other.cover(3 * PERMIT_BYTES, bounds).await;
        assert!(matches!(refused, Err(BodyError::Refused(Refusal::NoRoomForBody))));
        drop(part);
        assert_eq!(all.available_permits(), 4);
    }
}
