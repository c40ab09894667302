package cache

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/semantics"
)

// start is the time at which responses of tests arrive.
var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// after returns a date so many seconds after start, as fields have it.
func after(seconds int) string {
	return start.Add(time.Duration(seconds) * time.Second).Format(httpDate)
}

// parse reads lines of a header.
func parse(text string) (fields []semantics.Field) {
	for line := range strings.SplitSeq(text, "\n") {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
			fields = append(fields, semantics.Field{Name: name, Value: value})
		}
	}
	return fields
}

// exchanged is a request with its response, of which tests change parts.
type exchanged struct {
	policy   Policy
	request  Request
	response Response
}

func exchange(status int, header string) *exchanged {
	return &exchanged{
		Policy{MaxObject: 100},
		Request{Key: Key{"http://a.example/", "r"}},
		Response{Status: status, Fields: parse(header), Length: 10, Asked: start, Arrived: start},
	}
}

func (x *exchanged) entry() (*Entry, Reason) {
	x.request.Outgoing = append([]semantics.Field(nil), x.request.Fields...)
	return x.policy.New(&x.request, &x.response)
}

// testEntry is an entry with a header beside Date and Cache-Control, and content.
func testEntry(more []semantics.Field, content string) *Entry {
	x := exchange(200, "date: "+after(0)+"\ncache-control: max-age=100\netag: \"x\"\nlast-modified: "+after(-100))
	x.response.Fields = append(x.response.Fields, more...)
	e, _ := x.entry()
	return e.Complete([]byte(content))
}

// RFC 9111 3, 3.5, and RFC 9110 15.1.
func TestStorage(t *testing.T) {
	for _, tc := range []struct {
		name   string
		status int
		header string
		change func(x *exchanged)
		want   Reason
	}{
		{"3: max-age", 200, "cache-control: max-age=9", nil, Storable},
		{"3: Expires", 200, "expires: " + after(9), nil, Storable},
		{"3: s-maxage", 200, "cache-control: s-maxage=9", nil, Storable},
		{"3: nothing", 200, "etag: \"a\"", nil, NoFreshness},
		{"3: public alone", 200, "cache-control: public", nil, NoFreshness},
		{"3: public, and a validator", 200, "cache-control: public\netag: \"a\"", nil, Storable},
		{"3: stale, and a validator", 200, "cache-control: max-age=0\nlast-modified: " + after(-9), nil, Storable},
		{"3: stale, and none", 200, "cache-control: max-age=0", nil, NoFreshness},
		{"3: stale, to be used in place of errors", 200, "cache-control: max-age=0, stale-if-error=9", nil, Storable},
		{"3: 206", 206, "cache-control: max-age=9\ncontent-range: bytes 0-1/2", nil, ByStatus},
		{"3: 304", 304, "cache-control: max-age=9", nil, ByStatus},
		{"3: 416", 416, "cache-control: max-age=9", nil, ByStatus},
		{"3: interim", 103, "cache-control: max-age=9", nil, ByStatus},
		{"3: an error that asks for it", 404, "cache-control: max-age=9", nil, Storable},
		{"3: an unknown status that asks for it", 599, "cache-control: max-age=9", nil, Storable},
		{"5.2.2.3: must-understand", 599, "cache-control: max-age=9, must-understand", nil, ByStatus},
		{"5.2.2.3: must-understand, no-store", 599, "cache-control: max-age=9, must-understand, no-store", nil, ByStatus},
		{"5.2.2.3: understood", 200, "cache-control: max-age=9, must-understand, no-store", nil, Storable},
		{"5.2.2.4: no-cache without validator", 200, "cache-control: no-cache", nil, NoFreshness},
		{"5.2.2.4: no-cache", 200, "cache-control: no-cache\netag: \"a\"", nil, Storable},
		{"5.2.2.5: no-store", 200, "cache-control: max-age=9, no-store", nil, ByDirective},
		{"5.2.2.7: private", 200, "cache-control: max-age=9, private", nil, ByDirective},
		{"5.2.1.5: no-store of the client", 200, "cache-control: max-age=9", func(x *exchanged) { x.request.NoStore = true }, ByDirective},
		{"5.2.1.5: which is ignored", 200, "cache-control: max-age=9", func(x *exchanged) { x.request.NoStore, x.policy.IgnoreClient = true, true }, Storable},
		{"3.5: credentials", 200, "cache-control: max-age=9", authorize, ByCredentials},
		{"3.5: credentials elsewhere", 200, "cache-control: max-age=9", func(x *exchanged) { x.request.Authorized = true }, ByCredentials},
		{"3.5: public", 200, "cache-control: max-age=9, public", authorize, Storable},
		{"3.5: must-revalidate", 200, "cache-control: max-age=9, must-revalidate", authorize, Storable},
		{"3.5: s-maxage", 200, "cache-control: s-maxage=9", authorize, Storable},
		{"3.5: proxy-revalidate is not enough", 200, "cache-control: max-age=9, proxy-revalidate", authorize, ByCredentials},
		{"a cookie", 200, "cache-control: max-age=9\nset-cookie: a=b", nil, ByCookie},
		{"a cookie that is not stored", 200, "cache-control: max-age=9, no-cache=\"set-cookie\"\nset-cookie: a=b", nil, Storable},
		{"4.1: *", 200, "cache-control: max-age=9\nvary: *", nil, ByVary},
		{"4.1: a field", 200, "cache-control: max-age=9\nvary: foo", nil, Storable},
		{"4.1: what the gateway sets", 200, "cache-control: max-age=9\nvary: x-user", func(x *exchanged) { x.policy.Changed = []string{"x-user"} }, ByVary},
		{"4.1: what every gateway sets", 200, "cache-control: max-age=9\nvary: X-Forwarded-Proto", nil, ByVary},
		{"too long", 200, "cache-control: max-age=9", func(x *exchanged) { x.response.Length = 101 }, ByLength},
		{"as long as it may be", 200, "cache-control: max-age=9", func(x *exchanged) { x.response.Length = 100 }, Storable},
		{"of unknown length", 200, "cache-control: max-age=9", func(x *exchanged) { x.response.Length = -1 }, Storable},
		{"a default", 200, "", func(x *exchanged) { x.policy.DefaultTTL = time.Second }, Storable},
		{"a default is for no error", 404, "", func(x *exchanged) { x.policy.DefaultTTL = time.Second }, NoFreshness},
		{"a default is for no redirection of one request", 302, "", func(x *exchanged) { x.policy.DefaultTTL = time.Second }, NoFreshness},
		{"a default for what must not be stored", 200, "cache-control: no-store", func(x *exchanged) { x.policy.DefaultTTL = time.Second }, ByDirective},
	} {
		x := exchange(tc.status, tc.header)
		if tc.change != nil {
			tc.change(x)
		}
		if e, why := x.entry(); why != tc.want || (e != nil) != (why == Storable) {
			t.Errorf("%s: %v, want %v", tc.name, why, tc.want)
		}
	}
}

func authorize(x *exchanged) { x.request.Fields = lines("authorization", "Basic eDp5") }

// A field that differs at the backend, for whatever reason, is none to tell responses apart by.
func TestVaryByWhatTheBackendGetsOtherwise(t *testing.T) {
	x := exchange(200, "cache-control: max-age=9\nvary: foo")
	x.request.Fields, x.request.Outgoing = lines("foo", "1"), lines("foo", "2")
	if _, why := x.policy.New(&x.request, &x.response); why != ByVary {
		t.Errorf("%v", why)
	}
}

// RFC 9111 4.2.1, 4.2.2, 4.2.3: for how long a response is still fresh when it arrives, in seconds.
func TestFreshness(t *testing.T) {
	for _, tc := range []struct {
		name, header string
		change       func(x *exchanged)
		want         int
	}{
		{"max-age", "date: " + after(0) + "\ncache-control: max-age=60", nil, 60},
		{"s-maxage before max-age", "date: " + after(0) + "\ncache-control: max-age=60, s-maxage=5", nil, 5},
		{"max-age before Expires", "date: " + after(0) + "\ncache-control: max-age=60\nexpires: " + after(-5), nil, 60},
		{"Expires", "date: " + after(0) + "\nexpires: " + after(70), nil, 70},
		{"Expires after Date", "date: " + after(-10) + "\nexpires: " + after(70), nil, 70},
		{"the first Expires", "date: " + after(0) + "\nexpires: " + after(70) + "\nexpires: " + after(7), nil, 70},
		{"Expires that is no date", "date: " + after(0) + "\nexpires: 0\netag: \"a\"", nil, 0},
		{"no Date", "cache-control: max-age=60", nil, 60},
		{"an old Date", "date: " + after(-50) + "\ncache-control: max-age=60", nil, 10},
		{"a Date ahead", "date: " + after(50) + "\ncache-control: max-age=60", nil, 60},
		{"a wrong Date", "date: x\ncache-control: max-age=60", nil, 60},
		{"Age", "date: " + after(0) + "\nage: 50\ncache-control: max-age=60", nil, 10},
		{"Age and an older Date", "date: " + after(-55) + "\nage: 50\ncache-control: max-age=60", nil, 5},
		{"Age and the time of the answer", "date: " + after(0) + "\nage: 50\ncache-control: max-age=60", func(x *exchanged) { x.response.Asked = start.Add(-4 * time.Second) }, 6},
		{"the time of the answer alone", "date: " + after(0) + "\ncache-control: max-age=60", func(x *exchanged) { x.response.Asked = start.Add(-4 * time.Second) }, 56},
		{"the first Age", "date: " + after(0) + "\nage: 50, 0\ncache-control: max-age=60", nil, 10},
		{"the first line of Age", "date: " + after(0) + "\nage: 0\nage: 50\ncache-control: max-age=60", nil, 60},
		{"Age that is no number", "date: " + after(0) + "\nage: -50\ncache-control: max-age=60", nil, 60},
		{"Age of more than 31 bits", "date: " + after(0) + "\nage: 9999999999\ncache-control: max-age=60", nil, 60 - maxSeconds},
		{"heuristic", "date: " + after(0) + "\nlast-modified: " + after(-1000), func(x *exchanged) { x.policy.Heuristic = 10 }, 100},
		{"heuristic of a day at most", "date: " + after(0) + "\nlast-modified: Mon, 01 Jan 1900 00:00:00 GMT", func(x *exchanged) { x.policy.Heuristic = 100 }, 86400},
		{"heuristic before the default", "date: " + after(0) + "\nlast-modified: " + after(-1000), func(x *exchanged) { x.policy.Heuristic, x.policy.DefaultTTL = 10, time.Second }, 100},
		{"the default where there is no date", "date: " + after(0), func(x *exchanged) { x.policy.Heuristic, x.policy.DefaultTTL = 10, 7*time.Second }, 7},
		{"heuristic of a date ahead", "date: " + after(0) + "\nlast-modified: " + after(9), func(x *exchanged) { x.policy.Heuristic, x.policy.DefaultTTL = 10, 7*time.Second }, 7},
		{"Expires far ahead", "date: " + after(0) + "\nexpires: Fri, 31 Dec 9999 23:59:59 GMT", nil, maxSeconds},
	} {
		x := exchange(200, tc.header)
		if tc.change != nil {
			tc.change(x)
		}
		e, why := x.entry()
		if e == nil {
			t.Errorf("%s: %v", tc.name, why)
			continue
		}
		if got := e.Left(start); got != time.Duration(tc.want)*time.Second {
			t.Errorf("%s: %v, want %d s", tc.name, got, tc.want)
		}
		if got := e.Left(start.Add(3 * time.Second)); got != time.Duration(tc.want-3)*time.Second {
			t.Errorf("%s, 3 s later: %v", tc.name, got)
		}
	}
}

// RFC 9111 3.1: what of a header is stored. Nothing of the message's memory is kept.
func TestStoredFields(t *testing.T) {
	x := exchange(200, "cache-control: max-age=9, no-cache=\"b\", private=\"c\"\na: 1\nb: 2\nc: 3\nage: 4\nconnection: x\ncontent-length: 10\nkeep-alive: x\n"+
		"proxy-authenticate: x\nproxy-authentication-info: x\nproxy-connection: x\ntransfer-encoding: chunked\nupgrade: x\ntrailer: x\na: 5")
	text := []byte("header")
	x.response.Fields = append(x.response.Fields, semantics.Field{Name: view(text), Value: view(text)})
	e, _ := x.entry()
	copy(text, "******")
	want := parse("cache-control: max-age=9, no-cache=\"b\", private=\"c\"\na: 1\na: 5\nheader: header\ndate: " + after(0))
	if diff := cmp.Diff(want, e.Fields); diff != "" {
		t.Error(diff)
	}
}

// RFC 9111 4.2.4, 5.2.1, RFC 5861.
func TestUse(t *testing.T) {
	const minute = "cache-control: max-age=60"
	for _, tc := range []struct {
		name, header, control string
		policy                Policy
		at                    int // seconds after the response
		want                  Use
	}{
		{"fresh", minute, "", Policy{}, 59, Fresh},
		{"no longer fresh", minute, "", Policy{}, 60, Validate},
		{"5.2.2.4", "cache-control: max-age=60, no-cache", "", Policy{}, 0, Validate},
		{"5.2.1.1 max-age", minute, "max-age=5", Policy{}, 5, Fresh},
		{"5.2.1.1 max-age, too old", minute, "max-age=5", Policy{}, 6, Validate},
		{"5.2.1.1 max-age=0", minute, "max-age=0", Policy{}, 1, Validate},
		{"5.2.1.2 max-stale", minute, "max-stale=10", Policy{}, 70, Stale},
		{"5.2.1.2 max-stale, staler", minute, "max-stale=10", Policy{}, 71, Validate},
		{"5.2.1.2 max-stale, however stale", minute, "max-stale", Policy{}, 1000, Stale},
		{"5.2.1.2 max-stale, must-revalidate", minute + ", must-revalidate", "max-stale", Policy{}, 61, Validate},
		{"5.2.1.2 max-stale, proxy-revalidate", minute + ", proxy-revalidate", "max-stale", Policy{}, 61, Validate},
		{"5.2.1.2 max-stale, s-maxage", "cache-control: s-maxage=60", "max-stale", Policy{}, 61, Validate},
		{"5.2.1.3 min-fresh", minute, "min-fresh=10", Policy{}, 50, Fresh},
		{"5.2.1.3 min-fresh, not for long enough", minute, "min-fresh=10", Policy{}, 51, Validate},
		{"5.2.1.4 no-cache", minute, "no-cache", Policy{}, 0, Validate},
		{"ignored: no-cache", minute, "no-cache", Policy{IgnoreClient: true}, 0, Fresh},
		{"ignored: max-age", minute, "max-age=0", Policy{IgnoreClient: true}, 9, Fresh},
		{"ignored: max-stale", minute, "max-stale", Policy{IgnoreClient: true}, 61, Validate},
		{"RFC 5861 3", minute + ", stale-while-revalidate=10", "", Policy{}, 70, StaleRefresh},
		{"RFC 5861 3, after it", minute + ", stale-while-revalidate=10", "", Policy{}, 71, Validate},
		{"RFC 5861 3, and the client wants a fresh one", minute + ", stale-while-revalidate=10", "no-cache", Policy{}, 61, Validate},
		{"RFC 5861 3, must-revalidate", minute + ", must-revalidate, stale-while-revalidate=10", "", Policy{}, 61, Validate},
		{"RFC 5861 3, with s-maxage", "cache-control: s-maxage=60, stale-while-revalidate=10", "", Policy{}, 61, StaleRefresh},
		{"RFC 5861 3, of the rule", minute, "", Policy{StaleWhileRevalidate: 10 * time.Second}, 70, StaleRefresh},
		{"RFC 5861 3, the response before the rule", minute + ", stale-while-revalidate=0", "", Policy{StaleWhileRevalidate: 10 * time.Second}, 61, Validate},
		{"RFC 5861 3, of the rule, with s-maxage", "cache-control: s-maxage=60", "", Policy{StaleWhileRevalidate: 10 * time.Second}, 61, Validate},
	} {
		x := exchange(200, "date: "+after(0)+"\netag: \"a\"\n"+tc.header)
		x.policy = tc.policy
		x.policy.MaxObject = 100
		e, why := x.entry()
		if e == nil {
			t.Errorf("%s: %v", tc.name, why)
			continue
		}
		control := ParseControl(lines("cache-control", tc.control))
		if got := e.Use(&x.policy, &control, start.Add(time.Duration(tc.at)*time.Second)); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

// RFC 5861 4: stale in place of an error.
func TestServesErrors(t *testing.T) {
	for _, tc := range []struct {
		header string
		policy time.Duration
		at     int
		want   bool
	}{
		{"max-age=60", 0, 60, false},
		{"max-age=60, stale-if-error=10", 0, 70, true},
		{"max-age=60, stale-if-error=10", 0, 71, false},
		{"max-age=60", 10 * time.Second, 70, true},
		{"max-age=60, must-revalidate, stale-if-error=10", 10 * time.Second, 61, false},
		{"max-age=60, proxy-revalidate", 10 * time.Second, 61, false},
		{"max-age=60, no-cache", 10 * time.Second, 1, false},
		{"s-maxage=60", 10 * time.Second, 61, false},
		{"s-maxage=60, stale-if-error=10", 0, 61, true},
	} {
		x := exchange(200, "date: "+after(0)+"\netag: \"a\"\ncache-control: "+tc.header)
		x.policy.StaleIfError = tc.policy
		e, _ := x.entry()
		if got := e.ServesErrors(start.Add(time.Duration(tc.at) * time.Second)); got != tc.want {
			t.Errorf("%s, default %v, after %d s: %v", tc.header, tc.policy, tc.at, got)
		}
	}
}

// RFC 9111 4.3.1, 4.3.4, 3.2.
func TestFreshen(t *testing.T) {
	x := exchange(200, "date: "+after(0)+"\ncache-control: max-age=2\netag: \"x\"\nlast-modified: "+after(-9)+"\na: 1\nkept: 1\ncontent-encoding: gzip\ncontent-type: text/plain")
	e, _ := x.entry()
	e.Complete([]byte("content"))
	got := e.AppendConditions(nil)
	if diff := cmp.Diff(parse("if-none-match: \"x\"\nif-modified-since: "+after(-9)), got); diff != "" {
		t.Error(diff)
	}
	later := start.Add(10 * time.Second)
	r := Response{
		Status: 304, Length: -1, Asked: later, Arrived: later,
		Fields: parse("date: " + after(10) + "\ncache-control: max-age=50\netag: \"x\"\na: 2\na: 3\nage: 4\ncontent-encoding: br\ncontent-length: 3\ncontent-type: text/html\nconnection: z"),
	}
	fresh, why, ok := e.Freshen(&x.policy, &x.request, &r)
	if !ok || why != Storable || string(fresh.Body) != "content" || fresh.Status != 200 || fresh.Left(later) != 46*time.Second {
		t.Fatalf("%v, %v: %+v", why, ok, fresh)
	}
	want := parse("last-modified: " + after(-9) + "\nkept: 1\ncontent-encoding: gzip\ndate: " + after(10) + "\ncache-control: max-age=50\netag: \"x\"\na: 2\na: 3\ncontent-type: text/html")
	if diff := cmp.Diff(want, fresh.Fields); diff != "" {
		t.Error(diff)
	}
	for _, tc := range []struct {
		header string
		why    Reason
		ok     bool
		left   time.Duration
	}{
		{"", Storable, true, 2 * time.Second}, // no Date: it is fresh from now on
		{"etag: W/\"x\"", Storable, true, 2 * time.Second},
		{"etag: \"y\"", Storable, false, 0},
		{"cache-control: no-store", ByDirective, true, 0},
		{"cache-control: private", ByDirective, true, 0},
		{"set-cookie: a=b", ByCookie, true, 2 * time.Second},
		{"vary: *", ByVary, true, 0},
	} {
		r.Fields = parse(tc.header)
		fresh, why, ok := e.Freshen(&x.policy, &x.request, &r)
		if why != tc.why || ok != tc.ok || ok && (fresh.Left(later) != tc.left || string(fresh.Body) != "content") {
			t.Errorf("%q: %v, %v, %+v", tc.header, why, ok, fresh)
		}
		if ok {
			if _, has := field(fresh.Fields, "set-cookie"); has {
				t.Errorf("%q: %v", tc.header, fresh.Fields)
			}
		}
	}
}

// RFC 9111 4.3.5: a HEAD that shows another version.
func TestDiffers(t *testing.T) {
	e := testEntry(nil, "0123456789")
	for header, want := range map[string]bool{
		"": false, "etag: \"x\"": false, "etag: \"y\"": true, "last-modified: " + after(-100): false, "last-modified: " + after(-99): true,
	} {
		if got := e.Differs(&Response{Status: 200, Fields: parse(header), Length: -1}); got != want {
			t.Errorf("%q: %v", header, got)
		}
	}
	for length, want := range map[int64]bool{-1: false, 10: false, 9: true} {
		if got := e.Differs(&Response{Status: 200, Length: length}); got != want {
			t.Errorf("length %d: %v", length, got)
		}
	}
	if e.Differs(&Response{Status: 404, Length: 0}) {
		t.Error("an error shows nothing of the content")
	}
}

// RFC 9111 4.3.2, RFC 9110 13.2.2, 14.2, 13.1.5.
func TestAnswers(t *testing.T) {
	const part = "range: bytes=2-4\n"
	for _, tc := range []struct {
		name, method, header string
		want                 string // status, length, content, Content-Range
	}{
		{"all", "GET", "", `200 10 "0123456789" `},
		{"HEAD", "HEAD", "", `200 10 "" `},
		{"the tag", "GET", "if-none-match: \"x\"", `304 -1 "" `},
		{"a weak tag", "GET", "if-none-match: \"a\", W/\"x\"", `304 -1 "" `},
		{"on two lines", "GET", "if-none-match: \"a\"\nif-none-match: \"x\"", `304 -1 "" `},
		{"any", "GET", "if-none-match: *", `304 -1 "" `},
		{"another tag", "GET", "if-none-match: \"y\"", `200 10 "0123456789" `},
		{"another tag comes before the date", "GET", "if-none-match: \"y\"\nif-modified-since: " + after(0), `200 10 "0123456789" `},
		{"not since", "GET", "if-modified-since: " + after(-100), `304 -1 "" `},
		{"since", "GET", "if-modified-since: " + after(-101), `200 10 "0123456789" `},
		{"no date", "GET", "if-modified-since: x", `200 10 "0123456789" `},
		{"HEAD with the tag", "HEAD", "if-none-match: \"x\"", `304 -1 "" `},
		{"a part", "GET", part, `206 3 "234" bytes 2-4/10`},
		{"the rest", "GET", "range: bytes=7-", `206 3 "789" bytes 7-9/10`},
		{"the end", "GET", "range: bytes=-1", `206 1 "9" bytes 9-9/10`},
		{"behind the end", "GET", "range: bytes=10-", `416 0 "" bytes */10`},
		{"several parts", "GET", "range: bytes=0-1,3-4", `200 10 "0123456789" `},
		{"two lines", "GET", part + part, `200 10 "0123456789" `},
		{"another unit", "GET", "range: lines=2-4", `200 10 "0123456789" `},
		{"a part of HEAD", "HEAD", part, `200 10 "" `},
		{"a part that the client has", "GET", part + "if-none-match: \"x\"", `304 -1 "" `},
		{"of the version", "GET", part + "if-range: \"x\"", `206 3 "234" bytes 2-4/10`},
		{"of another version", "GET", part + "if-range: \"y\"", `200 10 "0123456789" `},
		{"of a weak version", "GET", part + "if-range: W/\"x\"", `200 10 "0123456789" `},
		{"of the date", "GET", part + "if-range: " + after(-100), `206 3 "234" bytes 2-4/10`},
		{"of another date", "GET", part + "if-range: " + after(-99), `200 10 "0123456789" `},
	} {
		e := testEntry(nil, "0123456789")
		a := e.Answer(tc.method, parse(tc.header))
		var text []byte
		value, _ := field(a.AppendFields(nil, &text, start), "content-range")
		if got := fmt.Sprintf("%d %d %q %s", a.Status, a.Length, a.Body, value); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
	e := testEntry(nil, "0123456789")
	e.modified = e.generated
	if a := e.Answer("GET", parse(part+"if-range: "+after(0))); a.Status != 200 {
		t.Error("a date within the second of the response is no strong validator")
	}
	e.modified, e.tag = time.Time{}, ""
	if a := e.Answer("GET", parse("if-modified-since: "+after(0))); a.Status != 304 {
		t.Error("without Last-Modified, Date counts")
	}
	if a := e.Answer("GET", parse("if-none-match: *")); a.Status != 200 {
		t.Error("without a tag none matches")
	}
	e.Status = 404
	if a := e.Answer("GET", parse(part+"if-none-match: \"x\"")); a.Status != 404 || len(a.Body) != 10 {
		t.Errorf("conditions and ranges are of responses 200: %+v", a)
	}
}

// RFC 9110 15.4.5: the header of a 304.
func TestFieldsOfAnswers(t *testing.T) {
	e := testEntry(parse("content-type: text/plain\ncontent-encoding: gzip\ncontent-location: /a\ncontent-security-policy: x\na: 1"), "0123456789")
	names := func(status int) (list []string) {
		a := Answer{Status: status, entry: e}
		var text []byte
		for _, f := range a.AppendFields(nil, &text, start) {
			list = append(list, f.Name)
		}
		return list
	}
	all := []string{"date", "cache-control", "etag", "last-modified", "content-type", "content-encoding", "content-location", "content-security-policy", "a", "age"}
	if diff := cmp.Diff(all, names(200)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"date", "cache-control", "etag", "last-modified", "content-location", "content-security-policy", "a", "age"}, names(304)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"date", "cache-control", "etag", "last-modified", "a", "age", "content-range"}, names(416)); diff != "" {
		t.Error(diff)
	}
	if got := string(appendAge(nil, 61500*time.Millisecond)); got != "61" {
		t.Errorf("Age: %s", got)
	}
}

// Content that has grown is stored without the room that it has not used.
func TestComplete(t *testing.T) {
	e := testEntry(nil, "")
	if e.Complete(make([]byte, 10, 100)); cap(e.Body) != 10 || len(e.Body) != 10 {
		t.Errorf("%d of %d bytes", len(e.Body), cap(e.Body))
	}
	before := e.Size()
	if e.Complete(make([]byte, 1010)); e.Size() != before+1000 {
		t.Errorf("%d, then %d bytes", before, e.Size())
	}
}
