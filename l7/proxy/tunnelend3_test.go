package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/quic"
	"github.com/millrace/millrace/semantics"
)

// What the client still sends is refused with the code that says why. H3_NO_ERROR is for the rest of a request whose response is
// complete (RFC 9114 4.1). A tunnel whose client stops reading is canceled in both directions (RFC 9114 4.4), as a TCP connection
// that is reset: by H3_REQUEST_CANCELLED (RFC 9220 3), whatever code the client has used.
func TestCodesByWhichRequestsOfHTTP3End(t *testing.T) {
	sockets := socketBackend(t)
	early := served(t, func(w http.ResponseWriter, req *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, "no")
	})
	post := semantics.Message{Method: "POST", ContentLength: -1}
	tunnel := semantics.Message{
		Method: "CONNECT", Protocol: "websocket", ContentLength: -1,
		Fields: []semantics.Field{{Name: "sec-websocket-version", Value: "13"}},
	}
	for _, c := range []struct {
		name    string
		backend string
		request semantics.Message
		stop    http3.ErrorCode // by which the client stops reading; 0: it does not
		want    http3.ErrorCode
	}{
		{"a response before the end of its request", strings.TrimPrefix(early.URL, "http://"), post, 0, http3.NoError},
		{"a tunnel that is not read, H3_NO_ERROR", sockets, tunnel, http3.NoError, http3.RequestCancelled},
		{"a tunnel that is not read, H3_REQUEST_CANCELLED", sockets, tunnel, http3.RequestCancelled, http3.RequestCancelled},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := http3Rig(t, c.backend, nil)
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			q := r.dial3(ctx, quicSocket(t), nil)
			defer func() { _ = q.CloseWithError(uint64(http3.NoError), "") }()
			s, err := q.OpenStream(ctx)
			must(t, err)
			m := c.request
			m.Scheme, m.Authority, m.Path = "https", "a.test", "/"
			_, err = s.Write(http3.NewMachine(http3.RoleClient, http3.MachineOptions{}).AppendRequest(nil, uint64(s.ID()), &m))
			must(t, err)
			if c.stop != 0 {
				_, err = io.ReadFull(s, make([]byte, 1)) // of the response: the tunnel is there
				must(t, err)
				s.CancelRead(uint64(c.stop))
			}
			if got := refusal(t, s); got != c.want {
				t.Errorf("the rest is refused by %v, want %v", got, c.want)
			}
			r.settled()
		})
	}
}

// refusal sends content until it is refused, and returns the code.
func refusal(t *testing.T, s *quic.Stream) http3.ErrorCode {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		_, err := s.Write(http3.AppendDataHeader(nil, 0))
		var e *quic.StreamError
		switch {
		case errors.As(err, &e) && e.Remote:
			return http3.ErrorCode(e.Code)
		case err != nil:
			t.Fatal(err)
		}
	}
	t.Fatal(fmt.Errorf("not refused within %v", patience))
	return 0
}
