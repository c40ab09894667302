package wscases

import "fmt"

// utf8Cases is RFC 6455 8.1: text that is UTF-8 and text that is not (RFC 3629), whole, in fragments
// and byte by byte.
func utf8Cases() (cs []Case) {
	for class, texts := range map[string][]string{
		"words":                              {"Hello-µ@ßöäüàá-UTF-8!!", "κόσμε", "日本語", "\U0001F600 smile"},
		"first of each length":               {"\x00", "\xc2\x80", "\xe0\xa0\x80", "\xf0\x90\x80\x80"},
		"last of each length":                {"\x7f", "\xdf\xbf", "\xef\xbf\xbf", "\xf4\x8f\xbf\xbf"},
		"around the surrogates and the end":  {"\xed\x9f\xbf", "\xee\x80\x80", "\xef\xbf\xbd", "\xf4\x8f\xbf\xbf"},
		"noncharacters, which are permitted": {"\xef\xbf\xbe", "\xf0\x9f\xbf\xbe", "\xf0\x9f\xbf\xbf", "\xf1\xaf\xbf\xbe", "\xf3\xbf\xbf\xbf", "\xf4\x8f\xbf\xbe"},
		"byte order mark":                    {"\xef\xbb\xbf", "\xef\xbb\xbftext"},
	} {
		for _, s := range texts {
			cs = append(cs, validText(class, s)...)
		}
	}
	for class, texts := range map[string][]string{
		"above U+10FFFF":                    {"\xf4\x90\x80\x80", "\xf7\xbf\xbf\xbf", "\xf5\x80\x80\x80"},
		"five and six bytes":                {"\xf8\x88\x80\x80\x80", "\xfb\xbf\xbf\xbf\xbf", "\xfc\x84\x80\x80\x80\x80", "\xfd\xbf\xbf\xbf\xbf\xbf"},
		"continuation bytes alone":          {"\x80", "\xbf", "\x80\xbf", "\x80\xbf\x80\xbf\x80\xbf\x80"},
		"first bytes alone":                 {"\xc2 \xc3 ", "\xdf ", "\xe0 \xe1 ", "\xef ", "\xf0 \xf1 ", "\xf4 "},
		"character without its last byte":   {"\xc2 x", "\xe0\xa0 x", "\xf0\x90\x80 x", "\xdf x", "\xef\xbf x", "\xf4\x8f\xbf x"},
		"impossible bytes":                  {"\xfe", "\xff", "\xfe\xfe\xff\xff", "\xc0", "\xc1", "\xf5", "\xf8"},
		"overlong slash":                    {"\xc0\xaf", "\xe0\x80\xaf", "\xf0\x80\x80\xaf", "\xf8\x80\x80\x80\xaf", "\xfc\x80\x80\x80\x80\xaf"},
		"largest overlong":                  {"\xc1\xbf", "\xe0\x9f\xbf", "\xf0\x8f\xbf\xbf", "\xf8\x87\xbf\xbf\xbf", "\xfc\x83\xbf\xbf\xbf\xbf"},
		"overlong NUL":                      {"\xc0\x80", "\xe0\x80\x80", "\xf0\x80\x80\x80", "\xf8\x80\x80\x80\x80"},
		"surrogates":                        {"\xed\xa0\x80", "\xed\xad\xbf", "\xed\xae\x80", "\xed\xaf\xbf", "\xed\xb0\x80", "\xed\xbe\x80", "\xed\xbf\xbf"},
		"pairs of surrogates":               {"\xed\xa0\x80\xed\xb0\x80", "\xed\xad\xbf\xed\xbf\xbf", "\xed\xaf\xbf\xed\xbf\xbf"},
		"surrogate in a text":               {"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited"},
		"above U+10FFFF in a text":          {"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xf4\x90\x80\x80edited"},
		"second byte out of range, 3 and 4": {"\xe0\x7f\x80", "\xe1\xc0\x80", "\xf0\x7f\x80\x80", "\xf1\xc0\x80\x80"},
	} {
		for _, s := range texts {
			cs = append(cs, invalidText(class, s)...)
		}
	}
	// A text that ends inside of a character is complete only when its message is.
	for _, s := range []string{"\xc2", "\xe0", "\xe0\xa0", "\xf0", "\xf0\x90", "\xf0\x90\x80", "text\xf4\x8f\xbf"} {
		name := fmt.Sprintf("ends inside of a character: % x", s)
		cs = append(cs,
			Case{Section: "6455 8.1", Name: name, send: []frame{message(text, s)}, closes: invalid},
			Case{Section: "6455 8.1", Name: name + ", empty last fragment", send: []frame{{op: text, more: true, payload: s}, {op: cont}}, closes: invalid})
	}
	// A violation is found before the message is complete: its rest is never sent.
	prefix := "\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5"
	cs = append(cs,
		Case{Section: "6455 8.1", Name: "quick: the second of three fragments", closes: invalid, send: []frame{{op: text, more: true, payload: prefix}, {op: cont, more: true, payload: "\xf4\x90\x80\x80"}}},
		Case{Section: "6455 8.1", Name: "quick: the second byte of a character", closes: invalid, send: []frame{{op: text, more: true, payload: prefix + "\xf4"}, {op: cont, more: true, payload: "\x90"}}},
		Case{Section: "6455 8.1", Name: "binary needs no UTF-8", send: []frame{message(bin, "\xff\xfe\xed\xa0\x80")}, want: []frame{message(bin, "\xff\xfe\xed\xa0\x80")}})
	return cs
}

// validText sends s whole, byte by byte, and in a fragment for each byte.
func validText(class, s string) (cs []Case) {
	name := fmt.Sprintf("%s: % x", class, s)
	want := []frame{message(text, s)}
	return []Case{
		{Section: "6455 8.1", Name: name, send: want, want: want},
		{Section: "6455 8.1", Name: name + ", byte by byte", send: want, want: want, chop: 1},
		{Section: "6455 8.1", Name: name + ", a fragment for each byte", send: shred(s), want: want},
	}
}

func invalidText(class, s string) (cs []Case) {
	name := fmt.Sprintf("%s: % x", class, s)
	return []Case{
		{Section: "6455 8.1", Name: name, send: []frame{message(text, s)}, closes: invalid},
		{Section: "6455 8.1", Name: name + ", byte by byte", send: []frame{message(text, s)}, closes: invalid, chop: 1},
		{Section: "6455 8.1", Name: name + ", a fragment for each byte", send: shred(s), closes: invalid},
	}
}

// shred returns a message in fragments of one byte.
func shred(s string) (fs []frame) {
	for i := range len(s) {
		f := frame{op: cont, more: i < len(s)-1, payload: s[i : i+1]}
		if i == 0 {
			f.op = text
		}
		fs = append(fs, f)
	}
	return fs
}
