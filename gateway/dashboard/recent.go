package dashboard

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// Notice is a record of the log with level warn or above.
type Notice struct {
	At    time.Time `json:"at"`
	Level string    `json:"level"`
	Text  string    `json:"text"` // the message and its attributes
}

// Bounds of what is kept.
const (
	recentNotices = 50
	recentText    = 500 // bytes of one
)

// Recent keeps the last records of a log that are of interest to an operator. The zero value is ready to be used.
type Recent struct {
	mu   sync.Mutex
	list []Notice // the oldest first
}

// Notices returns what is kept, the latest first.
func (r *Recent) Notices() []Notice {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]Notice, 0, len(r.list))
	for i := range r.list {
		out = append(out, r.list[len(r.list)-1-i])
	}
	return out
}

// Handler returns a handler that keeps records and passes all on to next.
func (r *Recent) Handler(next slog.Handler) slog.Handler { return &recentHandler{next: next, to: r} }

type recentHandler struct {
	next  slog.Handler
	to    *Recent
	attrs []slog.Attr
}

func (h *recentHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn || h.next.Enabled(ctx, l)
}

func (h *recentHandler) Handle(ctx context.Context, rec slog.Record) error {
	if rec.Level >= slog.LevelWarn {
		var b strings.Builder
		b.WriteString(rec.Message)
		add := func(a slog.Attr) bool {
			b.WriteString(" " + a.Key + "=" + a.Value.String())
			return b.Len() < recentText
		}
		for _, a := range h.attrs {
			add(a)
		}
		rec.Attrs(add)
		h.to.add(Notice{rec.Time, rec.Level.String(), strings.ToValidUTF8(b.String()[:min(b.Len(), recentText)], "\ufffd")})
	}
	if !h.next.Enabled(ctx, rec.Level) {
		return nil
	}
	return h.next.Handle(ctx, rec)
}

func (h *recentHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &recentHandler{next: h.next.WithAttrs(attrs), to: h.to, attrs: append(h.attrs[:len(h.attrs):len(h.attrs)], attrs...)}
}

func (h *recentHandler) WithGroup(name string) slog.Handler {
	return &recentHandler{next: h.next.WithGroup(name), to: h.to, attrs: h.attrs}
}

func (r *Recent) add(n Notice) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.list) == recentNotices {
		r.list = append(r.list[:0], r.list[1:]...)
	}
	r.list = append(r.list, n)
}
