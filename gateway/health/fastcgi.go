package health

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/millrace/millrace/l7/fastcgi"
)

// exchangeScript is exchange with FastCGI: the path of the check is SCRIPT_NAME, as php-fpm compares it with ping.path.
func (p *httpProbe) exchangeScript(conn net.Conn, t Target) error {
	r := fastcgi.Request{
		Script: fastcgi.Script{Name: p.url.Path}, Root: p.conn.FastCGI, Method: p.Method, Target: p.url.RequestURI(), Query: p.url.RawQuery, Protocol: "HTTP/1.1",
		Host: p.Host, Client: netip.IPv6Loopback(), Local: t.At,
	}
	if !t.At.IsValid() {
		r.Local = netip.AddrPortFrom(netip.IPv6Loopback(), 0)
	}
	if r.Host == "" {
		r.Host = t.authority()
	}
	out := fastcgi.AppendStdinEnd(fastcgi.AppendParams(fastcgi.AppendBegin(nil, false), r.Append(nil, nil)))
	if _, err := conn.Write(out); err != nil {
		return err
	}
	resp, err := readScript(conn)
	if err != nil {
		return err
	}
	return p.evaluate(resp)
}

// readScript reads the response, of whose content no more than is evaluated.
func readScript(conn io.Reader) (*http.Response, error) {
	var m fastcgi.Machine
	var head fastcgi.Head
	var log, body []byte
	resp := &http.Response{}
	limits := fastcgi.Limits{Bytes: maxHeader}
	for buf := make([]byte, 4096); ; {
		n, err := conn.Read(buf)
		for p := buf[:n]; ; {
			ev, k, err := m.Next(p)
			if p = p[k:]; err != nil {
				return nil, fmt.Errorf("%w: %w", ErrAnswer, err)
			}
			if ev.Kind == fastcgi.NeedInput {
				break
			}
			content := ev.Payload
			switch {
			case ev.Kind == fastcgi.Stderr:
				log = append(log, content[:min(len(content), maxHeader-len(log))]...)
			case ev.Kind == fastcgi.Stdout && resp.StatusCode == 0:
				k, complete, err := head.Take(content, &limits)
				if err == nil && complete {
					one, wrong := head.Message(nil, &limits)
					resp.StatusCode, err = one.Status, wrong
				}
				if err != nil {
					return nil, fmt.Errorf("%w: %w", ErrAnswer, err)
				}
				body = append(body, content[k:]...)
			case ev.Kind == fastcgi.Stdout:
				body = append(body, content[:min(len(content), max(maxBody-len(body), 0))]...)
			case ev.Status != fastcgi.Complete || resp.StatusCode == 0:
				return nil, fmt.Errorf("%w: the request has ended without a response (status %d, stderr %q)", ErrAnswer, ev.Status, shorten(strings.TrimSpace(string(log))))
			default:
				resp.Body = io.NopCloser(bytes.NewReader(body))
				return resp, nil
			}
		}
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, fmt.Errorf("fastcgi: %w", bare(err))
		}
	}
}
