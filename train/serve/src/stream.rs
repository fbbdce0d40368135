//! The body of a response: complete, or server-sent events while the replies grow.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use serde_json::Value;
use tokio::sync::mpsc::UnboundedReceiver;

use super::error::ApiError;
use super::model_thread::ReplyEvent;
use super::response::ResponseBuilder;

pub(crate) enum ResponseBody {
    Complete(Option<Bytes>),
    Stream(Box<EventStream>),
}

/// Server-sent events. When the client disconnects this is dropped, which closes the channel of the model thread.
pub(crate) struct EventStream {
    builder: ResponseBuilder,
    received: UnboundedReceiver<ReplyEvent>,
    ready: VecDeque<Bytes>,
    /// Whether each reply has started.
    started: Vec<bool>,
    /// Number of unfinished replies.
    left: usize,
    tokens: usize,
    is_over: bool,
}

impl EventStream {
    /// Returns the stream of `count` replies, whose first event has arrived.
    pub(crate) fn new(
        builder: ResponseBuilder,
        received: UnboundedReceiver<ReplyEvent>,
        count: usize,
        first: ReplyEvent,
    ) -> EventStream {
        let mut stream = EventStream {
            builder,
            received,
            ready: VecDeque::new(),
            started: vec![false; count],
            left: count,
            tokens: 0,
            is_over: false,
        };
        stream.push(Some(first));
        stream
    }

    /// Adds an event; `None` if the model thread has ended.
    fn push(&mut self, event: Option<ReplyEvent>) {
        let (index, piece, end) = match event {
            Some(ReplyEvent::Piece(index, piece)) => (index, piece, None),
            Some(ReplyEvent::End(index, piece, finish, tokens)) => {
                (index, piece, Some((finish, tokens)))
            }
            Some(ReplyEvent::Failed(error)) => return self.fail(&error),
            None => return self.fail(&ApiError::stopping()),
        };
        if !std::mem::replace(&mut self.started[index], true) {
            let opening = self.builder.opening(index);
            self.ready.extend(opening.as_ref().map(sent));
        }
        let has_piece = !piece.text.is_empty() || !piece.tokens.is_empty();
        if has_piece {
            self.ready
                .push_back(sent(&self.builder.piece(index, &piece, None)));
        }
        if let Some((finish, tokens)) = end {
            let end = self.builder.piece(index, &Default::default(), Some(finish));
            self.ready.push_back(sent(&end));
            self.left -= 1;
            self.tokens += tokens;
        }
        if self.left == 0 {
            let closing = self.builder.closing(self.tokens);
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

/// Formats a server-sent event.
fn sent(chunk: &Value) -> Bytes {
    format!("data: {chunk}\n\n").into()
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let stream = match self.get_mut() {
            ResponseBody::Complete(bytes) => {
                return Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes))));
            }
            ResponseBody::Stream(stream) => stream,
        };
        loop {
            if let Some(bytes) = stream.ready.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            if stream.is_over {
                return Poll::Ready(None);
            }
            match stream.received.poll_recv(cx) {
                Poll::Ready(event) => stream.push(event),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, ResponseBody::Complete(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            ResponseBody::Complete(bytes) => {
                let length = bytes.as_ref().map_or(0, Bytes::len);
                SizeHint::with_exact(length as u64)
            }
            ResponseBody::Stream(_) => SizeHint::default(),
        }
    }
}
