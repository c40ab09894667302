package websocket_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/wscases"
	"github.com/millrace/millrace/websocket"
)

const suitePatience = 20 * time.Second

// conn is how the suite's connections compress: everything.
func suiteConn(d *wscases.Parameters) (o websocket.ConnOptions) {
	if d != nil {
		o.Deflate = websocket.Deflate{
			Enabled: true, Threshold: 1, ServerNoTakeover: d.ServerNoTakeover, ClientNoTakeover: d.ClientNoTakeover,
			ServerWindowBits: d.ServerBits, ClientWindowBits: d.ClientBits,
		}
	}
	return o
}

func returnMessages(c *websocket.Conn) {
	defer c.CloseNow()
	var buf []byte
	for {
		op, p, err := c.ReadMessage(buf)
		if err != nil {
			return
		}
		if err := c.WriteMessage(op, p); err != nil {
			return
		}
		buf = p
	}
}

func TestSuiteAgainstTheServer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, &websocket.AcceptOptions{
			Conn: websocket.ConnOptions{Deflate: websocket.Deflate{Enabled: true, Threshold: 1}},
		})
		if err == nil {
			returnMessages(c)
		}
	}))
	defer server.Close()
	suite(t, func(c wscases.Case) error {
		return wscases.RunServer(server.Listener.Addr().String(), c, suitePatience)
	})
}

func TestSuiteAgainstTheClient(t *testing.T) {
	suite(t, func(c wscases.Case) error {
		return wscases.RunClient(c, suitePatience, func(address string) {
			conn, err := websocket.Dial(context.Background(), "ws://"+address, &websocket.DialOptions{Conn: suiteConn(c.Deflate)})
			if err != nil {
				t.Errorf("%s %s: %v", c.Section, c.Name, err)
				return
			}
			returnMessages(conn)
		})
	})
}

// suite plays all cases.
func suite(t *testing.T, run func(wscases.Case) error) {
	cases := wscases.Cases()
	if len(cases) < 600 {
		t.Fatalf("%d cases", len(cases))
	}
	for _, c := range cases {
		if err := run(c); err != nil {
			t.Errorf("RFC %s: %s: %v", c.Section, c.Name, err)
		}
	}
}
