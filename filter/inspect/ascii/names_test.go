package ascii

import (
	"strings"
	"testing"
)

func TestReadingsOfParameters(t *testing.T) {
	for field, want := range map[string]string{
		`a; filename=x`: "x",
		`a; filename=x; filename="x"; filename=y`:                      "x|y",
		`a; filename*=UTF-8'en'%65vil`:                                 "evil",
		`a; filename*0*=UTF-8''%65v; filename*1*=%69; filename*2=l%20`: "evil%20",
		`a; filename*1=b; filename*0=a; filename*1=c`:                  "ab",
		`a; filename*64=a; filename*-1=b; filename*x=c; filename*=`:    "",
		`a; filename*63=z; filename*0=a`:                               "az",
		`a; filename="=?utf-8?q?=65?="`:                                "=?utf-8?q?=65?=|e",
		`a; filename*0="=?utf-8?q?"; filename*1="=65?="`:               "=?utf-8?q?=65?=|e",
		`a; name=x; filenames=y`:                                       "",
		`a; filename=1; filename=2; filename=3; filename=4; filename=5; filename=6; filename=7; filename=8; filename=9`: "1|2|3|4|5|6|7|8",
	} {
		var got []string
		for _, v := range AppendReadings(nil, []byte(field), "filename") {
			got = append(got, string(v))
		}
		if s := strings.Join(got, "|"); s != want {
			t.Errorf("%s: %q, want %q", field, s, want)
		}
	}
	if got := AppendReadings([][]byte{[]byte("x")}, []byte("a; name=x; name=y"), "name"); len(got) != 2 || string(got[1]) != "y" {
		t.Errorf("%q", got)
	}
}
