package http1_test

import (
	"fmt"

	"github.com/millrace/millrace/http1"
	"github.com/millrace/millrace/semantics"
)

// A server reads a request in two pieces and answers it.
func Example() {
	m := http1.NewMachine(http1.RoleServer, http1.Options{})
	var out []byte
	for _, in := range [][]byte{[]byte("POST /greet HTTP/1.1\r\nHost: exam"), []byte("ple.org\r\nContent-Length: 4\r\n\r\nMira")} {
		for {
			ev, n, err := m.Input(in, false)
			if err != nil {
				fmt.Println(err)
				return
			}
			in = in[n:]
			switch ev.Kind {
			case http1.Headers:
				fmt.Println(m.Message().Method, m.Message().Authority, m.Message().Path)
			case http1.Data:
				fmt.Printf("content %q\n", ev.Payload)
			case http1.End:
				out, _ = m.AppendResponse(out, &semantics.Message{Status: 200, ContentLength: 5}, false)
				out, _ = m.AppendData(out, []byte("hello"))
				out, _ = m.AppendEnd(out, nil)
			}
			if ev.Kind == http1.NeedInput {
				break
			}
		}
	}
	fmt.Printf("%q\n", out)
	// Output:
	// POST example.org /greet
	// content "Mira"
	// "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"
}
