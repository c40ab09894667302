package daemon

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/millrace/millrace/websocket"
)

// WebSockets that outlive the drain time of their listener end with a Close frame, on both sides, when the process ends.
func TestWebSocketsAreClosedAtTheEnd(t *testing.T) {
	ended := make(chan error, 1)
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		for err == nil {
			_, _, err = c.ReadMessage(nil)
		}
		ended <- err
	}))
	t.Cleanup(backend.Close)
	s := newSite(t, strings.NewReplacer("BACKEND", strings.TrimPrefix(backend.URL, "http://"), "idle: 1h", "drain: 50ms").Replace(descriptorsConfig))
	c, err := websocket.Dial(t.Context(), "ws://"+s.addr+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	s.stop()
	var closed *websocket.CloseError
	if _, _, err := c.ReadMessage(nil); !errors.As(err, &closed) || closed.Code != websocket.CloseGoingAway {
		t.Errorf("the client: %v", err)
	}
	if err := <-ended; !errors.As(err, &closed) || closed.Code != websocket.CloseGoingAway {
		t.Errorf("the backend: %v", err)
	}
}
