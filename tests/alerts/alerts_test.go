package alerts_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
)

// minutes is how long a story goes. A fault begins after the first two hours of it.
const minutes = 300

// healthy is a fleet of two workers, each of which reads a document and makes a text a minute, with the failures that
// every fleet has.
func healthy(t *testing.T) series {
	s := series{}
	for _, instance := range []string{"a", "b"} {
		of := func(name, labels, values string) {
			s.add(t, fmt.Sprintf(`%s{job="lector",instance=%q%s} %s`, name, instance, labels, values))
		}
		of("up", "", "1x300")
		of("lector_queue_stuck", "", "0x300")
		of("lector_queue_sample_errors_total", "", "0x100 1x200")
		for _, kind := range []string{"ingest", "resume"} {
			k := fmt.Sprintf(",kind=%q", kind)
			of("lector_queue_jobs", k+`,priority="normal",state="waiting"`, "40x300")
			of("lector_queue_jobs", k+`,priority="normal",state="taken"`, "2x300")
			of("lector_jobs_total", k+`,state="done",class="done"`, "0+1x300")
			of("lector_jobs_total", k+`,state="failed",class="bad-input"`, "0x50 1x120 2x129")
			of("lector_attempts_total", k+`,class="done"`, "0+1x300")
			of("lector_attempts_total", k+`,class="full"`, "0+3x300")
			of("lector_attempts_total", k+`,class="memory"`, "0x150 1x150")
			for _, class := range []string{"diverged", "corrupt", "probe", "panic", "device", "storage"} {
				of("lector_attempts_total", k+fmt.Sprintf(",class=%q", class), "0x300")
			}
		}
		for _, class := range []string{"corrupt", "probe"} {
			of("lector_restores_total", fmt.Sprintf(",class=%q", class), "0x300")
		}
		of("lector_restores_total", `,class="done"`, "0+1x300")
		of("lector_lease_losses_total", `,lease="delivery"`, "0x80 1x220")
		of("lector_lease_losses_total", `,lease="claim"`, "0x300")
		of("lector_store_requests_total", `,op="put",result="ok"`, "0+40x300")
		of("lector_store_requests_total", `,op="put",result="error"`, "0x90 1x210")
		of("lector_store_request_seconds_bucket", `,op="put",le="1"`, "0+39x300")
		of("lector_store_request_seconds_bucket", `,op="put",le="20"`, "0+40x300")
		of("lector_store_request_seconds_bucket", `,op="put",le="40"`, "0+40x300")
		of("lector_store_request_seconds_bucket", `,op="put",le="+Inf"`, "0+40x300")
		of("lector_ingest_upload_seconds_total", `,part="held"`, "0+2x300")
		of("lector_ingest_seconds_total", `,part="prefill"`, "0+50x300")
		of("lector_spool_waiting", "", "0x300")
		of("lector_spool_bytes", "", "500x300")
		of("lector_spool_quota_bytes", "", "1000x300")
		of("lector_drafts_total", `,result="accepted"`, "0+60x300")
		of("lector_drafts_total", `,result="rejected"`, "0+40x300")
	}
	return s
}

// Each alert fires on its fault, soon after it has lasted for as long as the rule says, and on nothing before; the others
// stay silent, but for those that a fault is one of, too. A healthy fleet is silent.
func TestAlerts(t *testing.T) {
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 10_000_000, Timeout: time.Minute, LookbackDelta: 5 * time.Minute})
	defer engine.Close()
	all := rules(t)
	for _, r := range all {
		if at := r.fires(t, engine, healthy(t), minutes); at >= 0 {
			t.Errorf("%s fires on a healthy fleet in minute %d", r.Alert, at)
		}
	}
	faults := map[string]fault{}
	for _, f := range everyFault() {
		faults[f.alert] = f
	}
	for _, r := range all {
		f, known := faults[r.Alert]
		if !known {
			t.Errorf("no fault is told for %s", r.Alert)
			continue
		}
		t.Run(r.Alert, func(t *testing.T) { f.check(t, engine, all) })
	}
	if len(faults) != len(all) {
		t.Errorf("%d faults are told, and there are %d alerts", len(faults), len(all))
	}
}

// fault is what a fleet shows when something is wrong, from minute 120 on.
type fault struct {
	alert  string
	shows  []string // in place of what the healthy fleet shows
	within int      // minutes after the fault
	also   []string // other alerts that it is a case for
}

func (f fault) check(t *testing.T, engine *promql.Engine, all []rule) {
	s := healthy(t)
	before := len(s)
	for _, line := range f.shows {
		s.add(t, line)
	}
	if len(s) != before {
		t.Fatalf("the fault shows series that a healthy fleet lacks: %v", f.shows)
	}
	expected := map[string]bool{f.alert: true}
	for _, a := range f.also {
		expected[a] = true
	}
	for _, r := range all {
		at := r.fires(t, engine, s, minutes)
		switch {
		case at >= 0 && !expected[r.Alert]:
			t.Errorf("%s fires, too, in minute %d", r.Alert, at)
		case r.Alert == f.alert && (at < 120 || at > 120+f.within):
			t.Errorf("fires in minute %d, not within %d minutes after the fault in minute 120", at, f.within)
		}
	}
}

func everyFault() []fault {
	const a = `job="lector",instance="a"`
	return []fault{
		{alert: "LectorDown", shows: []string{`up{` + a + `} 1x119 0x180`}, within: 6},
		{alert: "LectorQueueStuck", shows: []string{`lector_queue_stuck{` + a + `} 0x119 1x180`}, within: 2},
		{alert: "LectorQueueUnreachable", shows: []string{`lector_queue_sample_errors_total{` + a + `} 0x119 1+1x180`}, within: 11},
		{
			alert: "LectorBacklog", within: 32,
			shows: []string{`lector_queue_jobs{` + a + `,kind="ingest",priority="normal",state="waiting"} 40x119 2000x180`},
		},
		{
			alert: "LectorJobsFail", within: 25,
			shows: []string{`lector_jobs_total{` + a + `,kind="ingest",state="failed",class="bad-input"} 0x119 1+1x180`},
		},
		{alert: "LectorDiverged", shows: []string{`lector_attempts_total{` + a + `,kind="ingest",class="diverged"} 0x119 1x180`}, within: 2},
		{alert: "LectorStateDamaged", shows: []string{`lector_restores_total{` + a + `,class="corrupt"} 0x119 1x180`}, within: 2},
		{alert: "LectorPanics", shows: []string{`lector_attempts_total{` + a + `,kind="resume",class="panic"} 0x119 1x180`}, within: 2},
		{alert: "LectorLeasesLost", shows: []string{`lector_lease_losses_total{` + a + `,lease="claim"} 0x119 1+1x180`}, within: 12},
		{alert: "LectorHostFails", shows: []string{`lector_attempts_total{` + a + `,kind="ingest",class="device"} 0x119 1+1x180`}, within: 5},
		{
			alert: "LectorStoreErrors", within: 10,
			shows: []string{`lector_store_requests_total{` + a + `,op="put",result="error"} 0x119 10+10x180`},
		},
		{
			alert: "LectorStoreSlow", within: 35,
			shows: []string{
				`lector_store_request_seconds_bucket{` + a + `,op="put",le="1"} 0+39x119 4641x180`,
				`lector_store_request_seconds_bucket{` + a + `,op="put",le="20"} 0+40x119 4760x180`,
			},
		},
		{
			alert: "LectorReadingWaits", within: 90,
			shows: []string{`lector_ingest_upload_seconds_total{` + a + `,part="held"} 0+2x119 240+25x180`},
		},
		{
			alert: "LectorSpoolFull", within: 17,
			shows: []string{`lector_spool_waiting{` + a + `} 0x119 1x180`, `lector_spool_bytes{` + a + `} 500x119 990x180`},
		},
		{
			alert: "LectorDraftsUseless", within: 130,
			shows: []string{
				`lector_drafts_total{` + a + `,result="accepted"} 0+60x119 7200x180`,
				`lector_drafts_total{` + a + `,result="rejected"} 0+40x119 4800+100x180`,
				`lector_drafts_total{job="lector",instance="b",result="accepted"} 0+60x119 7200x180`,
				`lector_drafts_total{job="lector",instance="b",result="rejected"} 0+40x119 4800+100x180`,
			},
		},
	}
}
