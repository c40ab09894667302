package health

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// grpcCheck is the method of gRPC's health protocol (grpc.health.v1, github.com/grpc/grpc/blob/master/doc/health-checking.md).
const grpcCheck = "/grpc.health.v1.Health/Check"

// maxMessage bounds the message of an answer, which holds one number.
const maxMessage = 4 << 10

// GRPC configures the call of types grpc and grpcs. A backend is healthy where the answer is SERVING.
type GRPC struct {
	Service string // key "service": whose health is asked for; "" (default) is that of the whole server
	Host    string // key "host": the :authority, and the default of ServerName; "" is the target

	// The rest is of grpcs, as in HTTP.
	ServerName string // key "server_name"
	Insecure   bool   // key "insecure"
	CAFile     string // key "ca_file"
	CA         string // its contents: Validate reads them
}

// http returns the settings of the request that carries the call.
func (g *GRPC) http() HTTP {
	return HTTP{
		Method: http.MethodPost, Path: grpcCheck, Host: g.Host, Status: []StatusRange{{200, 200}},
		ServerName: g.ServerName, Insecure: g.Insecure, CAFile: g.CAFile, CA: g.CA,
	}
}

// validate returns what is wrong, in words of the keys of grpc.
func (g *GRPC) validate(tls bool) problems {
	h := g.http()
	list := h.validate(tls)
	g.CA = h.CA
	for i := range list {
		p := &list[i]
		p.Key = strings.Replace(p.Key, "http.", "grpc.", 1)
		p.Message, p.Hint = strings.ReplaceAll(p.Message, "https", "grpcs"), strings.ReplaceAll(p.Hint, "https", "grpcs")
	}
	list.require(len(g.Service) <= maxExpect, "grpc.service", "", "service has %d bytes; at most %d are allowed", len(g.Service), maxExpect)
	return list
}

// newGRPCProbe returns the probe of a validated check: that of HTTP/2 with another request and another answer.
func newGRPCProbe(c *Check, dial Dialer) *httpProbe {
	over := *c
	over.HTTP, over.Conn.HTTP2 = c.GRPC.http(), true
	if over.Type = TypeHTTP; c.Type == TypeGRPCS {
		over.Type = TypeHTTPS
	}
	p := newHTTPProbe(&over, dial)
	if p.tls != nil {
		p.tls.NextProtos = []string{"h2"}
	}
	p.message, p.judge = grpcMessage(c.GRPC.Service), judgeGRPC
	return p
}

// grpcMessage returns a HealthCheckRequest with its prefix:
//
//	compressed(8) = 0 length(32) | field 1, length-delimited(8) length(varint) service
func grpcMessage(service string) []byte {
	var m []byte
	if service != "" {
		m = append(binary.AppendUvarint([]byte{1<<3 | 2}, uint64(len(service))), service...)
	}
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(m))), m...)
}

// callOf makes a request the call with a message.
func callOf(req *http.Request, message []byte) {
	req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(message)), int64(len(message))
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("Te", "trailers")
	req.Header.Del("Accept")
}

// judgeGRPC compares the answer of a call with SERVING. The status of the call is in trailers, or in the header where there is no message.
func judgeGRPC(resp *http.Response) error {
	if resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/grpc") {
		return fmt.Errorf("%w: status %d with content %q is no gRPC", ErrAnswer, resp.StatusCode, shorten(resp.Header.Get("Content-Type")))
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxMessage))
	if err != nil {
		return fmt.Errorf("grpc: %w", bare(err))
	}
	code := cmp.Or(resp.Trailer.Get("Grpc-Status"), resp.Header.Get("Grpc-Status"))
	if code != "0" {
		text := cmp.Or(resp.Trailer.Get("Grpc-Message"), resp.Header.Get("Grpc-Message"))
		return fmt.Errorf("%w: grpc-status %s %q", ErrAnswer, cmp.Or(shorten(code), "is missing"), shorten(text))
	}
	status, ok := servingStatus(body)
	if !ok {
		return fmt.Errorf("%w: %d bytes are no HealthCheckResponse", ErrAnswer, len(body))
	}
	if status != serving {
		return fmt.Errorf("%w: %s", ErrAnswer, statusName(status))
	}
	return nil
}

// serving is HealthCheckResponse.SERVING.
const serving = 1

func statusName(n uint64) string {
	names := []string{"UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"}
	if n < uint64(len(names)) {
		return names[n]
	}
	return "status " + strconv.FormatUint(n, 10)
}

// servingStatus reads one HealthCheckResponse that is not compressed. Its field 1 is a varint, 0 where it is missing. Of a field that
// comes twice the last counts, and other fields are passed over (protobuf's encoding).
func servingStatus(b []byte) (status uint64, ok bool) {
	if len(b) < 5 || b[0] != 0 || uint64(binary.BigEndian.Uint32(b[1:])) != uint64(len(b)-5) {
		return 0, false
	}
	for b = b[5:]; len(b) > 0; {
		key, n := binary.Uvarint(b)
		if n <= 0 || key>>3 == 0 {
			return 0, false
		}
		b = b[n:]
		size := uint64(0)
		switch key & 7 {
		case 0:
			v, n := binary.Uvarint(b)
			if n <= 0 {
				return 0, false
			}
			if key>>3 == 1 {
				status = v
			}
			b = b[n:]
			continue
		case 1:
			size = 8
		case 2:
			l, n := binary.Uvarint(b)
			if n <= 0 {
				return 0, false
			}
			b, size = b[n:], l
		case 5:
			size = 4
		default:
			return 0, false
		}
		if size > uint64(len(b)) {
			return 0, false
		}
		b = b[size:]
	}
	return status, true
}
