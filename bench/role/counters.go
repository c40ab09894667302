package role

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// These roles ask a program that knows nothing of the harness how much it has done. They are ready when it answers.

// RedisKey is the key that redis-benchmark reads, where it reads always the same.
const RedisKey = "key:__rand_int__"

// counted makes a role of a function that returns a count of this name.
func counted(name string, read func() (uint64, error)) (roleWork, error) {
	var err error
	for begin := time.Now(); time.Since(begin) < foreignReady; time.Sleep(5 * time.Millisecond) {
		if _, err = read(); err == nil {
			return roleWork{counts: func() (map[string]uint64, error) {
				n, err := read()
				return map[string]uint64{name: n}, err
			}}, nil
		}
	}
	return roleWork{}, err
}

// openRedisCount counts the commands that a Redis at -at has done. It sets RedisKey before.
func openRedisCount(o roleOptions) (roleWork, error) {
	var c net.Conn
	var in *bufio.Reader
	ask := func(command string) (string, error) {
		if err := c.SetDeadline(time.Now().Add(time.Second)); err != nil {
			return "", err
		}
		if _, err := io.WriteString(c, command+"\r\n"); err != nil {
			return "", err
		}
		head, err := in.ReadString('\n')
		if err != nil || head[0] != '$' {
			return head, err
		}
		n, err := strconv.Atoi(strings.TrimSpace(head[1:]))
		if err != nil || n < 0 {
			return "", fmt.Errorf("an answer of %q", head)
		}
		b := make([]byte, n+2)
		_, err = io.ReadFull(in, b)
		return string(b), err
	}
	return counted("commands", func() (uint64, error) {
		if c == nil {
			conn, err := net.DialTimeout("tcp", o.at, time.Second)
			if err != nil {
				return 0, err
			}
			c, in = conn, bufio.NewReader(conn)
			if said, err := ask("SET " + RedisKey + " xxx"); err != nil || said != "+OK\r\n" {
				return 0, fmt.Errorf("SET: %q %w", said, err)
			}
		}
		said, err := ask("INFO stats")
		if err != nil {
			return 0, err
		}
		_, rest, ok := strings.Cut(said, "total_commands_processed:")
		number, _, _ := strings.Cut(rest, "\r")
		if !ok {
			return 0, errors.New("no total_commands_processed in INFO")
		}
		return strconv.ParseUint(number, 10, 64)
	})
}

// openNginxCount counts the requests that an nginx has done: -at is the address whose /status is its stub_status.
func openNginxCount(o roleOptions) (roleWork, error) {
	client := http.Client{Timeout: time.Second}
	return counted("requests", func() (uint64, error) {
		res, err := client.Get("http://" + o.at + "/status")
		if err != nil {
			return 0, err
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		if err != nil {
			return 0, err
		}
		return nginxRequests(string(b))
	})
}

// nginxRequests reads the third number of the line below "server accepts handled requests".
func nginxRequests(status string) (uint64, error) {
	_, rest, _ := strings.Cut(status, "requests\n")
	fields := strings.Fields(rest)
	if len(fields) < 3 {
		return 0, fmt.Errorf("no stub_status: %q", status)
	}
	return strconv.ParseUint(fields[2], 10, 64)
}

// openLines counts the lines of the files whose path begins with its argument: logs with a line for each operation.
func openLines(o roleOptions) (roleWork, error) {
	if len(o.args) != 1 {
		return roleWork{}, errors.New("which files?")
	}
	return counted("lines", func() (sum uint64, err error) {
		paths, err := filepath.Glob(o.args[0] + "*")
		for _, p := range paths {
			b, e := os.ReadFile(p)
			sum, err = sum+uint64(bytes.Count(b, []byte{'\n'})), errors.Join(err, e)
		}
		return sum, err
	})
}
