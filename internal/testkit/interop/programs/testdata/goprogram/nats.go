package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"time"
)

// nats publishes messages to a server of NATS, one after the other, and receives each again, until a file is there. It connects again as often as it
// has to, and prints what came about. The protocol is that of NATS's clients: lines of text, and the bytes of a message behind its length.
func nats(addr, file string) error {
	messages, connections := 0, 0
	var last error
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		n, err := natsSession(addr, file)
		if messages += n; n > 0 {
			connections++
		}
		if err == nil {
			fmt.Printf("%d messages, %d connections\n", messages, connections)
			return nil
		}
		if last = err; errors.Is(err, errOtherBytes) {
			break
		}
	}
	return last
}

var errOtherBytes = errors.New("another message came")

// natsSession is one connection. Nil is that the file is there.
func natsSession(addr, file string) (messages int, err error) {
	c, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	in := bufio.NewReader(c)
	if _, err := in.ReadSlice('\n'); err != nil { // INFO
		return 0, err
	}
	subject := fmt.Sprintf("test.%016x", rand.Uint64())
	if _, err := fmt.Fprintf(c, "CONNECT {\"verbose\":false}\r\nSUB %s 1\r\n", subject); err != nil {
		return 0, err
	}
	for ; ; messages++ {
		if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) && messages > 0 {
			return messages, err
		}
		payload := bytes.Repeat([]byte{byte('a' + messages%26)}, 1+rand.IntN(20_000))
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		if _, err := fmt.Fprintf(c, "PUB %s %d\r\n%s\r\n", subject, len(payload), payload); err != nil {
			return messages, err
		}
		if err := natsMessage(c, in, subject, payload); err != nil {
			return messages, err
		}
	}
}

// natsMessage receives the message, and answers a PING of the server before it.
func natsMessage(c net.Conn, in *bufio.Reader, subject string, payload []byte) error {
	for {
		line, err := in.ReadString('\n')
		switch {
		case err != nil:
			return err
		case line == "PING\r\n":
			if _, err := c.Write([]byte("PONG\r\n")); err != nil {
				return err
			}
			continue
		case line != fmt.Sprintf("MSG %s 1 %d\r\n", subject, len(payload)):
			return fmt.Errorf("%w: %q", errOtherBytes, line)
		}
		got := make([]byte, len(payload)+2)
		if _, err := io.ReadFull(in, got); err != nil {
			return err
		}
		if !bytes.Equal(got[:len(payload)], payload) {
			return errOtherBytes
		}
		return nil
	}
}
