use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::hosts::Permit;
use super::progress::{Hook, ProgressStep};

/// The body of a response from reqwest. While it comes, its request is under way.
#[derive(Debug)]
pub(crate) struct SentBody {
    body: reqwest::Body,
    permit: Permit,
    hook: Hook,
    url: String,
    received: u64,
    is_over: bool,
}

impl SentBody {
    pub(crate) fn new(body: reqwest::Body, permit: Permit, hook: Hook, url: String) -> Self {
        Self {
            body,
            permit,
            hook,
            url,
            received: 0,
            is_over: false,
        }
    }

    fn end(&mut self, step: ProgressStep) {
        if !self.is_over {
            self.is_over = true;
            self.permit = None;
            self.hook.tell(&self.url, step);
        }
    }
}

impl Body for SentBody {
    type Data = Bytes;
    type Error = reqwest::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, reqwest::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref() {
                    self.received = self.received.saturating_add(data.len() as u64);
                    self.hook
                        .tell(&self.url, ProgressStep::Received(self.received));
                }
                if self.body.is_end_stream() {
                    self.end(ProgressStep::Ended);
                }
            }
            Poll::Ready(None) => self.end(ProgressStep::Ended),
            Poll::Ready(Some(Err(_))) => self.end(ProgressStep::BrokenOff),
            Poll::Pending => (),
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for SentBody {
    fn drop(&mut self) {
        let step = match self.body.is_end_stream() {
            true => ProgressStep::Ended,
            false => ProgressStep::BrokenOff,
        };
        self.end(step);
    }
}
