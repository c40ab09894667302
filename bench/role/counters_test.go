package role

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestNginxRequests(t *testing.T) {
	const status = "Active connections: 291 \nserver accepts handled requests\n 16630948 16630947 31070465 \nReading: 6 Writing: 179 Waiting: 106 \n"
	if n, err := nginxRequests(status); err != nil || n != 31070465 {
		t.Errorf("%d %v", n, err)
	}
	for _, bad := range []string{"", "<html>404</html>", "server accepts handled requests\n 1 2\n"} {
		if n, err := nginxRequests(bad); err == nil {
			t.Errorf("%q: %d and no error", bad, n)
		}
	}
}

// TestRedisCount asks a server that counts two commands for each question.
func TestRedisCount(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		for lines, n := bufio.NewScanner(c), 0; lines.Scan(); n += 2 {
			body := fmt.Sprintf("# Stats\r\ntotal_connections_received:1\r\ntotal_commands_processed:%d\r\nrest:0\r\n", n)
			if strings.HasPrefix(lines.Text(), "SET "+RedisKey+" ") {
				body = ""
				fmt.Fprint(c, "+OK\r\n")
				continue
			}
			fmt.Fprintf(c, "$%d\r\n%s\r\n", len(body), body)
		}
	}()
	w, err := openRedisCount(roleOptions{at: l.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []uint64{4, 6} { // opening has asked once
		if c, err := w.counts(); err != nil || c["commands"] != want {
			t.Errorf("%v %v, want %d", c, err, want)
		}
	}
}

func TestLinesOfSeveralFiles(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"log.1": "a\nb\n", "log.2": "c\nhalf", "other": "d\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w, err := openLines(roleOptions{args: []string{filepath.Join(dir, "log")}})
	if err != nil {
		t.Fatal(err)
	}
	if c, err := w.counts(); err != nil || c["lines"] != 3 {
		t.Errorf("%v %v, want 3 lines", c, err)
	}
}
