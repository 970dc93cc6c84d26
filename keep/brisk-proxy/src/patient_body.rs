//! Bodies that are waited for, but not for ever.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::Sleep;

use crate::body::BodyError;

/// A body that fails if nothing comes for too long.
pub struct PatientBody<B, C, E> {
    body: B,
    patience: Duration,
    come: C,
    late: E,
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<B, C, E> PatientBody<B, C, E> {
    /// `come` is told how many bytes came, and `late` makes the error.
    pub fn new(body: B, patience: Duration, come: C, late: E) -> Self {
        Self {
            body,
            patience,
            come,
            late,
            waiting: None,
        }
    }
}

impl<B, C, E> Body for PatientBody<B, C, E>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BodyError>,
    C: Fn(usize) + Unpin,
    E: Fn() -> BodyError + Unpin,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        match Pin::new(&mut this.body).poll_frame(cx) {
            Poll::Ready(frame) => {
                this.waiting = None;
                if let Some(Ok(frame)) = &frame
                    && let Some(data) = frame.data_ref()
                {
                    (this.come)(data.len());
                }
                Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
            }
            Poll::Pending => {
                let patience = this.patience;
                let sleep = this
                    .waiting
                    .get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
                sleep.as_mut().poll(cx).map(|()| Some(Err((this.late)())))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
