//! The body of a response: complete, or server-sent events while the replies grow.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use serde_json::Value;
use tokio::sync::mpsc::UnboundedReceiver;

use super::detokenizer::ReplyPiece;
use super::error::ApiError;
use super::model_thread::{ReplyEvent, ReplyPart};
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
        first: ReplyPart,
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
        stream.push(Ok(first));
        stream
    }

    fn push(&mut self, event: ReplyEvent) {
        let ReplyPart { index, piece, end } = match event {
            Ok(part) => part,
            Err(error) => {
                self.ready.push_back(sent(&error.body()));
                self.is_over = true;
                return;
            }
        };
        if !std::mem::replace(&mut self.started[index], true) {
            let opening = self.builder.opening(index);
            self.ready.extend(opening.as_ref().map(sent));
        }
        if piece != ReplyPiece::default() {
            let piece = self.builder.piece(index, &piece, None);
            self.ready.push_back(sent(&piece));
        }
        if let Some((finish, tokens)) = end {
            let no_more = ReplyPiece::default();
            let end = self.builder.piece(index, &no_more, Some(finish));
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
}

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
                // Without an event the model thread has ended.
                Poll::Ready(event) => stream.push(event.unwrap_or(Err(ApiError::stopping()))),
                Poll::Pending => return Poll::Pending,
            }
        }
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
