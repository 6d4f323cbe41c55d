/* A teacher that speaks and tells what it did: flite's audio together with the exact phones, stress, words, times and F0
 * that made it, none of which an analysis of the audio could give as well.
 *
 *   flite_teacher speak < requests    a request a line: voice TAB stretch TAB f0_ratio TAB f0_spread TAB tune TAB text
 *   flite_teacher lexicon < words     a word a line; answers: word TAB phones with stress
 *
 * An answer to speak is one line "n_samples rate n_phones n_f0 f0_step_s", one line a phone
 * "name TAB end_s TAB stress TAB first-in-word TAB word TAB punctuation", then int16 samples and float32 F0 in Hz (0 = unvoiced).
 * flite's intonation does not ask: `tune` scales how F0 is bent towards what the punctuation wants before the audio is made
 * (0 leaves it alone): a question rises at its end, one that begins with a question word starts high, a comma goes on,
 * an exclamation starts high and falls far, a full stop sinks.
 * Build: cc -O2 flite_teacher.c -lflite_cmu_us_rms -lflite_cmu_us_awb -lflite_cmu_us_slt -lflite_cmu_us_kal16
 *        -lflite_usenglish -lflite_cmulex -lflite -lm
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <flite/flite.h>
#include <flite/cst_cg.h>

cst_voice *register_cmu_us_rms(const char *d);
cst_voice *register_cmu_us_awb(const char *d);
cst_voice *register_cmu_us_slt(const char *d);
cst_voice *register_cmu_us_kal16(const char *d);
cst_lexicon *cmulex_init(void);

static cst_voice *voice_named(const char *name)
{
    if (!strcmp(name, "rms")) return register_cmu_us_rms(NULL);
    if (!strcmp(name, "awb")) return register_cmu_us_awb(NULL);
    if (!strcmp(name, "slt")) return register_cmu_us_slt(NULL);
    if (!strcmp(name, "kal16")) return register_cmu_us_kal16(NULL);
    return NULL;
}

/* F0 from the intonation targets of a diphone voice: straight lines between them, silent where the phone has no voice. */
static int f0_of_targets(cst_utterance *u, float *f0, int n, float step)
{
    cst_item *t = utt_rel_head(u, "Target"), *s = utt_rel_head(u, "Segment");
    float p0 = 0, v0 = 0, p1 = 0, v1 = 0;
    int i;
    p0 = p1 = 0; v0 = v1 = t ? item_feat_float(t, "f0") : 0;
    for (i = 0; i < n; i++) {
        float now = i * step;
        while (now > p1 && t) {
            p0 = p1; v0 = v1;
            p1 = item_feat_float(t, "pos"); v1 = item_feat_float(t, "f0");
            t = item_next(t);
        }
        while (s && item_feat_float(s, "end") < now) s = item_next(s);
        const char *vc = s ? ffeature_string(s, "ph_vc") : "-", *vox = s ? ffeature_string(s, "ph_cvox") : "-";
        float v = p1 > p0 ? v0 + (v1 - v0) * (now - p0) / (p1 - p0) : v1;
        f0[i] = (!strcmp(vc, "+") || !strcmp(vox, "+")) ? v : 0;
    }
    return n;
}

static float tune = 0;

static int asks_with_a_word(const char *w)
{
    static const char *const words[] = {"who", "what", "where", "when", "why", "how", "which", "whose", "whom", 0};
    int i;
    for (i = 0; words[i]; i++)
        if (!strcmp(w, words[i])) return 1;
    return 0;
}

/* 0 before `from`, 1 at `to`, a quarter of a circle between. */
static float rising(float now, float from, float to)
{
    float x = to > from ? (now - from) / (to - from) : 1;
    x = x < 0 ? 0 : x > 1 ? 1 : x;
    return x * x * (1.5f - 0.5f * x);
}

typedef struct { float begins, ends; char mark; int word; } phrase;

/* Phrases, from one pause to the next, each with the punctuation behind it and whether a question word opens it. */
static int phrases_of(cst_utterance *u, phrase *out, int room)
{
    cst_item *s, *last = NULL;
    int n = 0;
    for (s = utt_rel_head(u, "Segment"); s && n < room; s = item_next(s)) {
        if (strcmp(item_feat_string(s, "name"), "pau")) {
            if (!last) {
                out[n].begins = item_prev(s) ? item_feat_float(item_prev(s), "end") : 0;
                out[n].word = asks_with_a_word(ffeature_string(s, "R:SylStructure.parent.parent.name"));
            }
            last = s;
        } else if (last) {
            const char *punc = ffeature_string(last, "R:SylStructure.parent.parent.R:Token.parent.punc");
            out[n].ends = item_feat_float(last, "end");
            out[n++].mark = strchr(punc, '?') ? '?' : strchr(punc, '!') ? '!' : strchr(punc, '.') || !item_next(s) ? '.' : ',';
            last = NULL;
        }
    }
    return n;
}

/* The semitones by which F0 is bent at `now`, in phrase p. */
static float bend(const phrase *p, float now)
{
    if (p->mark == '?' && p->word)
        return 2.5f - 3.0f * rising(now, p->begins, p->begins + 0.5f) + 3.0f * rising(now, p->ends - 0.35f, p->ends);
    if (p->mark == '?') return 10.0f * rising(now, p->ends - 0.55f, p->ends - 0.04f);
    if (p->mark == '!') return 3.0f - 5.0f * (now - p->begins) / (p->ends - p->begins + 0.2f);
    if (p->mark == '.') return -2.0f * rising(now, p->ends - 0.4f, p->ends);
    return 3.5f * rising(now, p->ends - 0.35f, p->ends - 0.04f);
}

static float bent(const phrase *p, int n, float hz, float now)
{
    while (n > 1 && now > p->ends) p++, n--;
    return hz > 0 && n ? hz * powf(2, tune * bend(p, now) / 12) : hz;
}

static int stop_at_once(const cst_wave *w, int start, int size, int last, cst_audio_streaming_info *asi)
{
    return CST_AUDIO_STREAM_STOP;
}

/* In place of a voice's own last step: parameters, bent F0, audio. */
static cst_utterance *bent_synth(cst_utterance *u)
{
    cst_cg_db *cg = val_cg_db(utt_feat_val(u, "cg_db"));
    cst_audio_streaming_info *asi = new_audio_streaming_info();
    cst_track *t, *smooth;
    static phrase in[256];
    int i, n;
    asi->asc = stop_at_once;
    feat_set(u->features, "streaming_info", audio_streaming_info_val(asi));
    cg_synth(u);
    feat_remove(u->features, "streaming_info");
    t = val_track(utt_feat_val(u, "param_track"));
    n = phrases_of(u, in, 256);
    /* flite's smoothing divides by nothing once in some millions of frames, at the end of a phone. */
    for (i = 0; i < t->num_frames; i++)
        if (!isfinite(t->frames[i][0])) t->frames[i][0] = i ? t->frames[i - 1][0] : 0;
    for (i = 0; i < t->num_frames; i++) t->frames[i][0] = bent(in, n, t->frames[i][0], i * cg->frame_advance);
    smooth = cg->do_mlpg ? mlpg(t, cg) : t;
    utt_set_wave(u, mlsa_resynthesis(smooth, feat_present(u->features, "str_track") ? val_track(utt_feat_val(u, "str_track")) : NULL,
                                     cg, NULL, 0));
    if (cg->do_mlpg) delete_track(smooth);
    return u;
}

/* A diphone voice's F0 stands in its targets. */
static cst_utterance *(*diphone_synth)(cst_utterance *);
static cst_utterance *bent_targets(cst_utterance *u)
{
    static phrase in[256];
    int n = phrases_of(u, in, 256);
    cst_item *t;
    for (t = utt_rel_head(u, "Target"); t; t = item_next(t))
        item_set_float(t, "f0", bent(in, n, item_feat_float(t, "f0"), item_feat_float(t, "pos")));
    return diphone_synth(u);
}

static void speak(char *line)
{
    char *name = strtok(line, "\t"), *stretch = strtok(NULL, "\t"), *ratio = strtok(NULL, "\t"), *spread = strtok(NULL, "\t");
    char *tuned = strtok(NULL, "\t"), *text = strtok(NULL, "\n");
    cst_voice *v = voice_named(name);
    const cst_val *cg = feat_present(v->features, "cg_db") ? feat_val(v->features, "cg_db") : NULL;
    float mean = cg ? val_cg_db(cg)->f0_mean : 95.0f, sd = cg ? val_cg_db(cg)->f0_stddev : 11.0f, step = 0.005f;
    feat_set_float(v->features, "duration_stretch", atof(stretch));
    feat_set_float(v->features, "int_f0_target_mean", mean * atof(ratio));
    feat_set_float(v->features, "int_f0_target_stddev", sd * atof(ratio) * atof(spread));
    tune = atof(tuned);
    if (tune && !feat_present(v->features, "bent")) {
        feat_set_int(v->features, "bent", 1);
        if (!cg) diphone_synth = val_uttfunc(feat_val(v->features, "wave_synth_func"));
        feat_set(v->features, "wave_synth_func", uttfunc_val(cg ? bent_synth : bent_targets));
    }
    cst_utterance *u = flite_synth_text(text, v);
    cst_wave *w = utt_wave(u);
    int n = 0, nf0 = 0, i;
    float *f0;
    cst_item *s, *before = NULL;
    for (s = utt_rel_head(u, "Segment"); s; s = item_next(s)) n++;
    if (cg) {
        cst_track *t = val_track(utt_feat_val(u, "param_track"));
        step = val_cg_db(cg)->frame_advance;
        nf0 = t->num_frames;
        f0 = malloc(sizeof(float) * (nf0 + 1));
        for (i = 0; i < nf0; i++) f0[i] = t->frames[i][0];
    } else {
        nf0 = (int)(w->num_samples / (w->sample_rate * step));
        f0 = malloc(sizeof(float) * (nf0 + 1));
        nf0 = f0_of_targets(u, f0, nf0, step);
    }
    printf("%d %d %d %d %g\n", w->num_samples, w->sample_rate, n, nf0, step);
    for (s = utt_rel_head(u, "Segment"); s; s = item_next(s)) {
        int pause = !strcmp(item_feat_string(s, "name"), "pau");
        const char *word = pause ? "-" : ffeature_string(s, "R:SylStructure.parent.parent.name");
        const char *punc = pause ? ffeature_string(s, "p.R:SylStructure.parent.parent.R:Token.parent.punc") : "-";
        cst_item *in = pause ? NULL : item_as(s, "SylStructure"), *of = in ? item_parent(item_parent(in)) : NULL;
        int first = of && of != before;
        before = of;
        printf("%s\t%g\t%s\t%d\t%s\t%s\n", item_feat_string(s, "name"), item_feat_float(s, "end"),
               pause ? "0" : ffeature_string(s, "R:SylStructure.parent.stress"), first, word, punc);
    }
    fwrite(w->samples, sizeof(short), w->num_samples, stdout);
    fwrite(f0, sizeof(float), nf0, stdout);
    fflush(stdout);
    free(f0);
    delete_utterance(u);
}

int main(int argc, char **argv)
{
    static char line[65536];
    flite_init();
    if (argc > 1 && !strcmp(argv[1], "lexicon")) {
        cst_lexicon *lex = cmulex_init();
        while (fgets(line, sizeof line, stdin)) {
            line[strcspn(line, "\n")] = 0;
            const cst_val *p = lex_lookup(lex, line, NULL, NULL), *q;
            printf("%s\t", line);
            for (q = p; q; q = val_cdr(q)) printf("%s%s", val_string(val_car(q)), val_cdr(q) ? " " : "");
            printf("\n");
        }
        return 0;
    }
    while (fgets(line, sizeof line, stdin)) speak(line);
    return 0;
}
