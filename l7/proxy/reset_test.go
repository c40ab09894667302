package proxy

import (
	"testing"

	h2 "golang.org/x/net/http2"
)

// A backend that cancels a stream ends the client's: with the same code, by which a client of gRPC knows a deadline from an error.
// Without gRPC the client gets a response if there was none.
func TestResetsOfBackends(t *testing.T) {
	for _, c := range []struct {
		name, content string
		answered      bool
		code, want    h2.ErrCode
		status        string
	}{
		{"gRPC, canceled", "application/grpc+proto", false, h2.ErrCodeCancel, h2.ErrCodeCancel, ""},
		{"gRPC, canceled after the header", "application/grpc", true, h2.ErrCodeCancel, h2.ErrCodeCancel, "200"},
		{"gRPC, error", "application/grpc", false, h2.ErrCodeInternal, 0, "502"},
		{"canceled", "text/plain", false, h2.ErrCodeCancel, 0, "502"},
		{"canceled after the header", "text/plain", true, h2.ErrCodeCancel, h2.ErrCodeCancel, "200"},
		{"no error after the header", "text/plain", true, h2.ErrCodeNo, h2.ErrCodeInternal, "200"},
		{"error after the header", "text/plain", true, h2.ErrCodeEnhanceYourCalm, h2.ErrCodeInternal, "200"},
	} {
		t.Run(c.name, func(t *testing.T) {
			backend := frameBackend(t, func(f *frames) {
				h := f.next(h2.FrameHeaders, anyStream)
				if h == nil {
					return
				}
				if c.answered {
					f.WriteHeaders(h2.HeadersFrameParam{StreamID: h.Header().StreamID, EndHeaders: true, BlockFragment: block(":status", "200")})
				}
				f.WriteRSTStream(h.Header().StreamID, c.code)
				f.next(h2.FrameGoAway, 0) // until the end
			})
			r := newRig(t, backend, func(r *rig) { r.pool.Protocol = HTTP2 })
			f := r.dialFrames()
			f.request(1, "POST", false, "content-type", c.content)
			status := ""
			for {
				got, err := f.ReadFrame()
				must(t, err)
				switch got := got.(type) {
				case *h2.HeadersFrame:
					status = f.status(got)
					if c.status == "502" && status == "502" {
						return
					}
				case *h2.RSTStreamFrame:
					if got.ErrCode != c.want || status != c.status {
						t.Errorf("status %q, then %v", status, got.ErrCode)
					}
					return
				}
			}
		})
	}
}
