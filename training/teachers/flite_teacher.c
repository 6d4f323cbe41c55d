/* A teacher that speaks and tells what it did: flite's audio together with the exact phones, stress, words, times and F0
 * that made it, none of which an analysis of the audio could give as well.
 *
 *   flite_teacher speak < requests    a request a line: voice TAB stretch TAB f0_ratio TAB f0_spread TAB text
 *   flite_teacher lexicon < words     a word a line; answers: word TAB phones with stress
 *
 * An answer to speak is one line "n_samples rate n_phones n_f0 f0_step_s", one line a phone
 * "name TAB end_s TAB stress TAB first-in-word TAB word TAB punctuation", then int16 samples and float32 F0 in Hz (0 = unvoiced).
 * Build: cc -O2 flite_teacher.c -lflite_cmu_us_rms -lflite_cmu_us_awb -lflite_cmu_us_slt -lflite_cmu_us_kal16
 *        -lflite_usenglish -lflite_cmulex -lflite -lm
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
    cst_item *t = item_daughter(utt_rel_head(u, "Target")), *r = utt_rel_head(u, "Target"), *s = utt_rel_head(u, "Segment");
    float p0 = 0, v0 = 0, p1 = 0, v1 = 0;
    int i;
    if (!r) return 0;
    t = item_daughter(r);
    p0 = p1 = 0; v0 = v1 = t ? item_feat_float(t, "f0") : 0;
    for (i = 0; i < n; i++) {
        float now = i * step;
        while (now > p1 && t) {
            p0 = p1; v0 = v1;
            p1 = item_feat_float(t, "pos"); v1 = item_feat_float(t, "f0");
            t = item_next(t);
            if (!t) { r = item_next(r); if (r) t = item_daughter(r); }
        }
        while (s && item_feat_float(s, "end") < now) s = item_next(s);
        const char *vc = s ? ffeature_string(s, "ph_vc") : "-", *vox = s ? ffeature_string(s, "ph_cvox") : "-";
        float v = p1 > p0 ? v0 + (v1 - v0) * (now - p0) / (p1 - p0) : v1;
        f0[i] = (!strcmp(vc, "+") || !strcmp(vox, "+")) ? v : 0;
    }
    return n;
}

static void speak(char *line)
{
    char *name = strtok(line, "\t"), *stretch = strtok(NULL, "\t"), *ratio = strtok(NULL, "\t"), *spread = strtok(NULL, "\t"), *text = strtok(NULL, "\n");
    cst_voice *v = voice_named(name);
    const cst_val *cg = feat_present(v->features, "cg_db") ? feat_val(v->features, "cg_db") : NULL;
    float mean = cg ? val_cg_db(cg)->f0_mean : 95.0f, sd = cg ? val_cg_db(cg)->f0_stddev : 11.0f, step = 0.005f;
    feat_set_float(v->features, "duration_stretch", atof(stretch));
    feat_set_float(v->features, "int_f0_target_mean", mean * atof(ratio));
    feat_set_float(v->features, "int_f0_target_stddev", sd * atof(ratio) * atof(spread));
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
