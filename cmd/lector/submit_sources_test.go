package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// Documents come from the web within limits of size, time and redirects, and never from https by way of http.
func TestFetchFromTheWeb(t *testing.T) {
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/book.txt":
			_, _ = io.WriteString(w, "a short book")
		case "/long":
			_, _ = io.WriteString(w, strings.Repeat("x", 100))
		case "/endless":
			for range 100 {
				_, _ = io.WriteString(w, "xxxxxxxxxx")
				w.(http.Flusher).Flush()
			}
		case "/slow":
			<-r.Context().Done()
		case "/again":
			http.Redirect(w, r, "/again", http.StatusFound)
		case "/once":
			http.Redirect(w, r, "/book.txt", http.StatusFound)
		default:
			http.NotFound(w, r)
		}
	}))
	defer plain.Close()
	f := fetcher{app: &app{}, limits: fetchLimits{bytes: 50, timeout: 10 * time.Second, redirects: 2}}
	for path, says := range map[string]string{
		"/book.txt?token=s3cret": "",
		"/once":                  "",
		"/long":                  "more than 50 B (--max-bytes)",
		"/endless":               "has more than 50 B (--max-bytes)",
		"/again?token=s3cret":    "more than 2 redirects (--redirects)",
		"/none":                  "404",
	} {
		text, name, err := f.fetch(t.Context(), plain.URL+path)
		switch {
		case says == "" && (err != nil || string(text) != "a short book" || name == ""):
			t.Errorf("%s: %q as %q, %v", path, text, name, err)
		case says != "" && (err == nil || !strings.Contains(err.Error(), says) || exitCode(err) != exitInput):
			t.Errorf("%s: error is %v, want %q in it", path, err, says)
		case err != nil && strings.Contains(err.Error(), "s3cret"):
			t.Errorf("%s: error gives a secret away: %v", path, err)
		}
	}
	f.limits.timeout = 50 * time.Millisecond
	if _, _, err := f.fetch(t.Context(), plain.URL+"/slow"); err == nil || !strings.Contains(err.Error(), "--fetch-timeout") {
		t.Errorf("a server that does not answer: %v", err)
	}
}

// A redirect to plain text would show the document on its way.
func TestNoDowngrade(t *testing.T) {
	before, err := http.NewRequest(http.MethodGet, "https://a.example/", nil)
	if err != nil {
		t.Fatal(err)
	}
	next, err := http.NewRequest(http.MethodGet, "http://a.example/", nil)
	if err != nil {
		t.Fatal(err)
	}
	f := fetcher{limits: fetchLimits{redirects: 5}}
	if err := f.redirect(next, []*http.Request{before}); err == nil || !strings.Contains(err.Error(), "from https to http") {
		t.Errorf("a redirect to http: %v", err)
	}
	if err := f.redirect(before, []*http.Request{next}); err != nil {
		t.Error(err)
	}
}

func TestDeadlineAndLabels(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for text, want := range map[string]string{
		"":                     "0001-01-01T00:00:00Z",
		"2h":                   "2026-01-02T05:04:05Z",
		"2026-02-01T00:00:00Z": "2026-02-01T00:00:00Z",
		"-2h":                  "has passed",
		"2025-01-01T00:00:00Z": "has passed",
		"soon":                 "neither",
	} {
		at, err := parseDeadline(text, now)
		if got := at.Format(time.RFC3339); err == nil && got != want || err != nil && !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("deadline %q is %s, %v, want %s", text, got, err, want)
		}
	}
	if l, err := parseLabels([]string{"a=b=c", "d="}); err != nil || l["a"] != "b=c" || len(l) != 2 {
		t.Errorf("labels are %v: %v", l, err)
	}
	if _, err := parseLabels([]string{"=x"}); err == nil {
		t.Error("a label without a name")
	}
}
