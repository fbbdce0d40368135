//! The body of an answer: whole, or as server-sent events while the replies grow.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use serde_json::Value;
use tokio::sync::mpsc::UnboundedReceiver;

use super::answer::Answer;
use super::error::ApiError;
use super::worker::Event;

/// The body of an answer.
pub enum Answered {
    Whole(Option<Bytes>),
    Stream(Box<Stream>),
}

/// Server-sent events, as the worker's come. When the client has gone this is dropped, and the worker notices.
pub struct Stream {
    answer: Answer,
    received: UnboundedReceiver<Event>,
    ready: VecDeque<Bytes>,
    /// of each reply, whether it has begun
    begun: Vec<bool>,
    /// replies that have not ended
    left: usize,
    tokens: usize,
    is_over: bool,
}

impl Stream {
    /// So many replies, of whose events the first has come.
    pub fn new(
        answer: Answer,
        received: UnboundedReceiver<Event>,
        count: usize,
        first: Event,
    ) -> Stream {
        let mut stream = Stream {
            answer,
            received,
            ready: VecDeque::new(),
            begun: vec![false; count],
            left: count,
            tokens: 0,
            is_over: false,
        };
        stream.tell(Some(first));
        stream
    }

    /// Writes what an event says; none: there will be no more.
    fn tell(&mut self, event: Option<Event>) {
        let (index, piece, end) = match event {
            Some(Event::Piece(index, piece)) => (index, piece, None),
            Some(Event::End(index, piece, finish, tokens)) => {
                (index, piece, Some((finish, tokens)))
            }
            Some(Event::Failed(error)) => return self.fail(&error),
            None => return self.fail(&ApiError::stopping()),
        };
        if !std::mem::replace(&mut self.begun[index], true) {
            let opening = self.answer.opening(index);
            self.ready.extend(opening.as_ref().map(sent));
        }
        let has_piece = !piece.text.is_empty() || !piece.tokens.is_empty();
        if has_piece {
            self.ready
                .push_back(sent(&self.answer.piece(index, &piece, None)));
        }
        if let Some((finish, tokens)) = end {
            let end = self.answer.piece(index, &Default::default(), Some(finish));
            self.ready.push_back(sent(&end));
            self.left -= 1;
            self.tokens += tokens;
        }
        if self.left == 0 {
            let closing = self.answer.closing(self.tokens);
            self.ready.extend(closing.as_ref().map(sent));
            self.ready
                .push_back(Bytes::from_static(b"data: [DONE]\n\n"));
            self.is_over = true;
        }
    }

    fn fail(&mut self, error: &ApiError) {
        self.ready.push_back(sent(&error.body()));
        self.is_over = true;
    }
}

/// One event.
fn sent(chunk: &Value) -> Bytes {
    format!("data: {chunk}\n\n").into()
}

impl Body for Answered {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let stream = match self.get_mut() {
            Answered::Whole(bytes) => {
                return Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes))));
            }
            Answered::Stream(stream) => stream,
        };
        loop {
            if let Some(bytes) = stream.ready.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            if stream.is_over {
                return Poll::Ready(None);
            }
            match stream.received.poll_recv(cx) {
                Poll::Ready(event) => stream.tell(event),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Answered::Whole(None))
    }

    /// A length is sent along with what is whole.
    fn size_hint(&self) -> SizeHint {
        match self {
            Answered::Whole(bytes) => {
                let length = bytes.as_ref().map_or(0, Bytes::len);
                SizeHint::with_exact(length as u64)
            }
            Answered::Stream(_) => SizeHint::default(),
        }
    }
}
