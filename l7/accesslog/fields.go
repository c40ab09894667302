package accesslog

import (
	"crypto/tls"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// field is a value of a record that a line may have. One of its functions is set.
type field struct {
	name   string
	text   func(*Record) string          // what clients may have chosen: it is escaped; "" is left out
	exact  func([]byte, *Record) []byte  // text that needs no escape; nothing appended is left out
	number func([]byte, *Record) []byte  // the same, a number
	moment func(*moments, []byte) []byte // of the time of the line
}

const headerPrefix = "header." // of names of fields of the request's header

// table lists the fields. The order is that of lines of JSON whose fields are not chosen, which have the first of them.
var table = []field{
	{name: "time", moment: (*moments).appendTime},
	{name: "client", exact: func(b []byte, r *Record) []byte {
		if r.Forwarded.IsValid() {
			return r.Forwarded.AppendTo(b) // its port is not known
		}
		return r.Client.AppendTo(b)
	}},
	{name: "listener", text: func(r *Record) string { return r.Listener }},
	{name: "protocol", text: func(r *Record) string { return r.Protocol }},
	{name: "method", text: func(r *Record) string { return r.Method }},
	{name: "host", text: func(r *Record) string { return r.Host }},
	{name: "path", text: func(r *Record) string { return r.Path }},
	{name: "route", text: func(r *Record) string { return r.Route }},
	{name: "rule", text: func(r *Record) string { return r.Rule }},
	{name: "pool", text: func(r *Record) string { return r.Pool }},
	{name: "backend", text: func(r *Record) string { return r.Backend }},
	{name: "error", text: func(r *Record) string { return r.Error }},
	{name: "reason", text: func(r *Record) string { return r.Reason }},
	{name: "request_id", text: func(r *Record) string { return r.RequestID }},
	{name: "user", text: func(r *Record) string { return r.User }},
	{name: "cache", text: func(r *Record) string { return r.Cache }},
	{name: "status", number: func(b []byte, r *Record) []byte { return appendInt(b, r.Status) }},
	{name: "attempts", number: func(b []byte, r *Record) []byte { return appendInt(b, r.Attempts) }},
	{name: "bytes_in", number: func(b []byte, r *Record) []byte { return appendUint(b, r.BytesIn) }},
	{name: "bytes_out", number: func(b []byte, r *Record) []byte { return appendUint(b, r.BytesOut) }},
	{name: "seconds", number: func(b []byte, r *Record) []byte { return appendSeconds(b, r.Began) }},
	{name: "time_clf", moment: (*moments).appendCLF},
	{name: "client_address", exact: func(b []byte, r *Record) []byte {
		return appendAddr(b, r.Address())
	}},
	{name: "client_port", number: func(b []byte, r *Record) []byte {
		if r.Forwarded.IsValid() {
			return b
		}
		return strconv.AppendUint(b, uint64(r.Client.Port()), 10)
	}},
	{name: "peer_address", exact: func(b []byte, r *Record) []byte { return appendAddr(b, r.Client.Addr().Unmap().WithZone("")) }},
	{name: "peer_port", number: func(b []byte, r *Record) []byte { return strconv.AppendUint(b, uint64(r.Client.Port()), 10) }},
	{name: "trace_id", text: func(r *Record) string { return r.TraceID }},
	{name: "user_agent", text: func(r *Record) string { return r.field("user-agent") }},
	{name: "referer", text: func(r *Record) string { return r.field("referer") }},
	{name: "server_name", text: func(r *Record) string { return r.ServerName }},
	{name: "ja4", text: func(r *Record) string { return r.JA4 }},
	{name: "tls_version", text: tlsVersion},
	{name: "tls_cipher", text: tlsCipher},
	{name: "wait_seconds", number: func(b []byte, r *Record) []byte { return phase(b, r, r.Waited) }},
	{name: "backend_seconds", number: func(b []byte, r *Record) []byte {
		if r.Answered == 0 {
			return b
		}
		return phase(b, r, r.Answered)
	}},
	{name: "response_seconds", number: func(b []byte, r *Record) []byte {
		if r.Answered == 0 {
			return b
		}
		return phase(b, r, r.Began-r.Waited-r.Answered)
	}},
}

// usual counts the fields at the beginning of table that lines of JSON have by default.
var usual = slices.IndexFunc(table, func(f field) bool { return f.name == "seconds" }) + 1

// appendAddr appends an address, and nothing for none.
func appendAddr(b []byte, a netip.Addr) []byte {
	if !a.IsValid() {
		return b
	}
	return a.AppendTo(b)
}

func tlsVersion(r *Record) string {
	if r.TLSVersion == 0 {
		return ""
	}
	return tls.VersionName(r.TLSVersion)
}

func tlsCipher(r *Record) string {
	if r.CipherSuite == 0 {
		return ""
	}
	return tls.CipherSuiteName(r.CipherSuite)
}

// phase appends a time of a request that reached a backend.
func phase(b []byte, r *Record, d time.Duration) []byte {
	if r.Attempts == 0 {
		return b
	}
	return appendSeconds(b, max(d, 0))
}

// Fields returns the names of fields; beside them "header." and the name of a field of the request's header is one.
func Fields() (names []string) {
	for i := range table {
		names = append(names, table[i].name)
	}
	return names
}

// credentials are fields of requests whose values let others in.
var credentials = []string{"authorization", "proxy-authorization", "cookie"}

// named returns the field of a name.
func named(name string) (field, error) {
	if i := slices.IndexFunc(table, func(f field) bool { return f.name == name }); i >= 0 {
		return table[i], nil
	}
	header, ok := strings.CutPrefix(name, headerPrefix)
	switch {
	case !ok:
		return field{}, fmt.Errorf("unknown field %q", name)
	case header == "" || strings.ToLower(header) != header || strings.Trim(header, "abcdefghijklmnopqrstuvwxyz0123456789-_.!#$&'*+^`|~") != "":
		return field{}, fmt.Errorf("%q does not end with the name of a header field in lower case", name)
	case slices.Contains(credentials, header):
		return field{}, fmt.Errorf("%s holds credentials, which a log must not have", header)
	}
	return field{name: name, text: func(r *Record) string { return r.field(header) }}, nil
}

// CheckField returns why a name is none of a field; nil where it is.
func CheckField(name string) error {
	_, err := named(name)
	return err
}

// appendSeconds appends a time with microseconds.
func appendSeconds(b []byte, d time.Duration) []byte {
	us := uint64(max(d+time.Microsecond/2, 0)) / 1000
	if us < 1e6 {
		b = append(b, '0')
	} else {
		b = strconv.AppendUint(b, us/1e6, 10)
		us %= 1e6
	}
	high, low := us/1000, us%1000
	return append(b, '.', '0'+byte(high/100), '0'+byte(high/10%10), '0'+byte(high%10), '0'+byte(low/100), '0'+byte(low/10%10), '0'+byte(low%10))
}

func appendInt(b []byte, n int) []byte {
	if n < 0 {
		return strconv.AppendInt(b, int64(n), 10)
	}
	return appendUint(b, uint64(n))
}

// appendUint appends a number. Most have three digits or less, for which the general way is long.
func appendUint(b []byte, n uint64) []byte {
	switch {
	case n < 10:
		return append(b, '0'+byte(n))
	case n < 100:
		return append(b, '0'+byte(n/10), '0'+byte(n%10))
	case n < 1000:
		return append(b, '0'+byte(n/100), '0'+byte(n/10%10), '0'+byte(n%10))
	}
	return strconv.AppendUint(b, n, 10)
}

// moments are the times of a line, as text. Most lines of a loop have the second of the one before, which is not formatted again.
type moments struct {
	now         time.Time
	second      int64
	stamp, line []byte // of that second: RFC 3339 up to the fraction, and the common log format
}

func (m *moments) set(now time.Time) {
	m.now = now
	if s := now.Unix(); s != m.second || m.stamp == nil {
		m.second = s
		m.stamp = now.UTC().AppendFormat(m.stamp[:0], "2006-01-02T15:04:05.")
		m.line = now.UTC().AppendFormat(m.line[:0], "02/Jan/2006:15:04:05 -0700")
	}
}

// appendTime appends the time in RFC 3339 with milliseconds.
func (m *moments) appendTime(b []byte) []byte {
	ms := m.now.Nanosecond() / int(time.Millisecond)
	return append(append(b, m.stamp...), '0'+byte(ms/100), '0'+byte(ms/10%10), '0'+byte(ms%10), 'Z')
}

// appendCLF appends the time as in the common log format.
func (m *moments) appendCLF(b []byte) []byte { return append(b, m.line...) }
