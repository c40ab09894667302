package websocket_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/millrace/millrace/websocket"
)

// echo returns every message of a client until it closes.
func echo(w http.ResponseWriter, r *http.Request) {
	c, err := websocket.Accept(w, r, nil)
	if err != nil {
		return // the client has the reason
	}
	defer c.CloseNow()
	var buf []byte
	for {
		op, message, err := c.ReadMessage(buf)
		if err != nil {
			return
		}
		if err := c.WriteMessage(op, message); err != nil {
			return
		}
		buf = message // the next message goes where this one was
	}
}

func ExampleAccept() {
	server := httptest.NewServer(http.HandlerFunc(echo))
	defer server.Close()

	c, err := websocket.Dial(context.Background(), server.URL, nil)
	if err != nil {
		log.Fatal(err)
	}
	_ = c.WriteMessage(websocket.Text, []byte("hello"))
	op, message, _ := c.ReadMessage(nil)
	fmt.Printf("%v: %s\n", op, message)
	fmt.Println(c.Close(websocket.CloseNormal, "done"))
	// Output:
	// text: hello
	// <nil>
}

func ExampleDial() {
	server := httptest.NewServer(http.HandlerFunc(echo))
	defer server.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	c, err := websocket.Dial(ctx, server.URL, &websocket.DialOptions{
		Conn: websocket.ConnOptions{Deflate: websocket.Deflate{Enabled: true}},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer c.CloseNow()
	fmt.Println("compression:", c.Deflate().Enabled) // the server declined
	// Output: compression: false
}

func ExampleNetConn() {
	server := httptest.NewServer(http.HandlerFunc(echo))
	defer server.Close()

	c, err := websocket.Dial(context.Background(), server.URL, nil)
	if err != nil {
		log.Fatal(err)
	}
	conn := websocket.NetConn(context.Background(), c, websocket.Binary)
	defer conn.Close()
	fmt.Fprintln(conn, "any protocol over net.Conn")
	line := make([]byte, 64)
	n, _ := conn.Read(line)
	fmt.Printf("%s", line[:n])
	// Output: any protocol over net.Conn
}

// An event loop feeds a machine what arrived and sends what it appends.
func ExampleMachine() {
	m := websocket.NewMachine(websocket.Server, websocket.MachineOptions{})
	arrived := []byte("\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58")
	var send []byte
	for {
		ev, n, err := m.Next(arrived)
		if err != nil {
			log.Fatal(err) // send a Close frame with the code of the *ProtocolError
		}
		arrived = arrived[n:]
		switch ev.Kind {
		case websocket.NeedInput:
			fmt.Printf("%q\n", send)
			return
		case websocket.Message:
			send, _ = m.AppendFragment(send, ev.Opcode, ev.Payload, ev.Last)
		case websocket.Ping:
			send, _ = m.AppendPong(send, ev.Payload)
		case websocket.Close:
			send, _ = m.AppendClose(send, ev.Code, "")
		}
	}
	// Output: "\x81\x05Hello"
}
