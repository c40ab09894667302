package daemon

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

const ownRules = `drop http any any -> any any (msg:"own"; flow:to_server; http.uri; content:"/own"; sid:30;)`

// Routes choose whether, how strictly and by which rules their requests and responses are inspected, over all versions, with requests of
// several routes on one connection; the rest of the listener goes on as it says.
func TestRoutesChooseTheirInspection(t *testing.T) {
	v := newInspected(t, edgeRules, "", "")
	route := func(name, inspection string) string {
		return "- {name: " + name + ", listeners: [web]," + inspection + " rules: [{matches: [{path: {value: /" + name + "}}], backend_refs: [{name: p}]}]}\n"
	}
	src := strings.Replace(v.src, "routes:\n", "routes:\n"+route("free", ` inspection: {mode: "off"},`)+route("seen", " inspection: {mode: detect},")+
		route("but", " inspection: {exclude: [3, '1:99']},")+route("own", "")+route("lax", ` inspection: {mode: prevent, exclude: "1:4"},`), 1)
	src = strings.Replace(src, "policies: [{name: edge", "policies: [{name: own, mode: prevent, routes: [own], rules: "+filepath.Join(v.dir, "own.rules")+"}, {name: edge", 1)
	write(t, filepath.Join(v.dir, "own.rules"), ownRules)
	v.reload(src)
	v.each(func(version string) {
		for n, c := range []struct {
			path string
			want int
			sids string // of alerts, with the action
		}{
			{"/evil", 403, "3 drop"},
			{"/free/evil?answer=a+secret", 200, ""},
			{"/seen/evil?answer=a+secret", 200, "3 alert 5 alert"},
			{"/but/evil", 200, ""},
			{"/but/evil?answer=a+secret", 502, "5 drop"},
			{"/own/thing", 403, "30 drop"},
			{"/lax/evil", 403, "3 drop"},
			{"/a/../free/evil", 200, ""},
			{"/free/../evil", 403, "3 drop"},
			{"/free/%2e%2e/evil", 403, "3 drop"},
			{"/fre%65/evil", 200, ""},
			{"/freeevil/evil", 403, "3 drop"},
		} {
			mark := fmt.Sprintf("n%s-%d", version, n)
			at := c.path + map[bool]string{true: "&", false: "?"}[strings.Contains(c.path, "?")] + "m=" + mark
			before := len(v.alerts())
			if resp, _ := v.ask(version, "GET", at); resp.StatusCode != c.want {
				t.Errorf("HTTP/%s %s: status %d, want %d", version, c.path, resp.StatusCode, c.want)
			}
			want := len(strings.Fields(c.sids)) / 2
			eventually(t, fmt.Sprintf("%d alerts of %s", want, c.path), func() bool { return v.sids(before, mark) == c.sids })
		}
		if status := v.post(version, "/lax/post", "identity", "an evil", "body of HTTP/"+version); status != 200 || !v.received("an evilbody of HTTP/"+version) {
			t.Errorf("HTTP/%s: an excluded rule on content: status %d", version, status)
		}
		if status := v.post(version, "/but/post", "identity", "an evil", "body at HTTP/"+version); status != 403 || v.received("evilbody at HTTP/"+version) {
			t.Errorf("HTTP/%s: content of a route that excludes another rule: status %d", version, status)
		}
	})
	for _, f := range v.d.inspection.Fits() {
		if text := f.String(); strings.Contains(text, "it does not have: 1:99") != (f.Policy == "edge") {
			t.Errorf("%s: %s", f.Policy, text)
		}
	}
}

// sids returns the alerts behind the first ones about a request with a mark, in the order of the rules: an alert of the file may be late.
func (v *inspectedSite) sids(from int, mark string) string {
	var list []string
	for _, a := range v.alerts()[from:] {
		if a.Request != nil && strings.HasSuffix(a.Request.URI, "m="+mark) {
			list = append(list, fmt.Sprint(a.Rule.SID, " ", a.Action))
		}
	}
	return strings.Join(list, " ")
}

// A field that a rule on http.header looks for does not reach a server by another spelling of its name, and others do.
func TestNoSpellingOfAFieldGoesAroundRulesOnHeaders(t *testing.T) {
	v := newInspected(t, edgeRules+`drop http any any -> any any (flow:to_server; http.header; content:"X-Probe|3a 20|bad"; nocase; sid:8;)`+"\n", "", "")
	v.each(func(version string) {
		if resp, _ := v.ask(version, "GET", "/a", "X-Probe", "bad"); resp.StatusCode != 403 {
			t.Errorf("HTTP/%s: status %d", version, resp.StatusCode)
		}
		other := "X_Other_" + strings.ReplaceAll(version, ".", "")
		if resp, _ := v.ask(version, "GET", "/a", "X_Probe", "bad", "X.Probe", "bad", other, "1"); resp.StatusCode != 200 || v.received("field X_probe") || v.received("field X.probe") {
			t.Errorf("HTTP/%s: status %d", version, resp.StatusCode)
		}
		if !v.received("field " + http.CanonicalHeaderKey(other)) {
			t.Errorf("HTTP/%s: another field has not come", version)
		}
	})
}
